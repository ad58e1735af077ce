"""The arithmetic: requests against results, executions against incidents (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

import msgspec

from async_processor.testing.chaos.ledger import Incident, Ledger


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of fault did to the requests that ran where and when it struck.

    `recovery` is the median and the longest time, in seconds, from the end of a fault to the last
    of these results.
    """

    fault: str
    injected: int
    requests: int
    results: int
    lost: int
    duplicated: int
    executed_again: int
    recovery: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial showed. `recoveries` are seconds, one for each fault that interrupted work."""

    name: str
    injected: Mapping[str, int]
    requests: int
    results: int
    lost: Sequence[str]
    duplicated: Sequence[str]
    strange: Sequence[str]
    calls: int
    executed_again: int
    unexplained: Sequence[str]
    kinds: Mapping[str, int]
    recoveries: Sequence[float]
    kills: int = 0
    missed: int = 0
    complaints: Sequence[str] = ()
    seconds: float = 0.0
    shares: Sequence[Share] = ()

    @property
    def faults(self) -> int:
        """How often a fault was injected."""
        return sum(self.injected.values())

    @property
    def problems(self) -> list[str]:
        """What must not be, in words; empty when the promises held."""
        found = {
            "lost": self.lost,
            "two results": self.duplicated,
            "results of nobody's request": self.strange,
            "executed again for no reason": self.unexplained,
        }
        said = [f"{what}: {len(ids)} ({', '.join(ids[:5])})" for what, ids in found.items() if ids]
        return [*said, *self.complaints]

    @property
    def recovery(self) -> str:
        """Median and longest time to recover in seconds, for people to read."""
        return _median_and_longest(self.recoveries)


def judge(
    name: str,
    submitted: Collection[str],
    kinds: Mapping[str, Sequence[str]],
    seen_at: Mapping[str, float],
    ledger: Ledger,
) -> Verdict:
    """`kinds` and `seen_at` are those of `Results`."""
    return Verdict(
        name=name,
        injected=Counter(incident.fault for incident in ledger.incidents),
        requests=len(submitted),
        results=sum(map(len, kinds.values())),
        lost=sorted(set(submitted) - kinds.keys()),
        duplicated=sorted(request_id for request_id, found in kinds.items() if len(found) > 1),
        strange=sorted(kinds.keys() - set(submitted)),
        calls=ledger.calls,
        executed_again=len(ledger.repeated()),
        unexplained=sorted({first.request_id for first, _ in ledger.unexplained()}),
        kinds=Counter(kind for found in kinds.values() for kind in found),
        recoveries=recoveries(ledger.incidents, seen_at, ledger),
        kills=sum(len(incident.deaths) for incident in ledger.incidents),
        shares=by_fault(kinds, seen_at, ledger),
    )


def recoveries(
    incidents: Iterable[Incident], seen_at: Mapping[str, float], ledger: Ledger
) -> list[float]:
    """From the end of each fault to the last result of the requests that it struck."""
    found = []
    for incident in incidents:
        came = [seen_at[each] for each in ledger.struck([incident]) if each in seen_at]
        if came:
            found.append(max(0.0, max(came) - incident.ended))
    return found


def by_fault(
    kinds: Mapping[str, Sequence[str]], seen_at: Mapping[str, float], ledger: Ledger
) -> list[Share]:
    """The share of each kind of fault in a trial, in alphabetical order."""
    incidents = defaultdict[str, list[Incident]](list)
    for incident in ledger.incidents:
        incidents[incident.fault].append(incident)
    return [_share(name, incidents[name], kinds, seen_at, ledger) for name in sorted(incidents)]


def _share(
    name: str,
    incidents: Sequence[Incident],
    kinds: Mapping[str, Sequence[str]],
    seen_at: Mapping[str, float],
    ledger: Ledger,
) -> Share:
    hit = ledger.struck(incidents)
    return Share(
        fault=name,
        injected=len(incidents),
        requests=len(hit),
        results=sum(len(kinds.get(each, ())) for each in hit),
        lost=sum(each not in kinds for each in hit),
        duplicated=sum(len(kinds.get(each, ())) > 1 for each in hit),
        executed_again=sum(len(ledger.executions[each]) > 1 for each in hit),
        recovery=_median_and_longest(recoveries(incidents, seen_at, ledger)),
    )


def _median_and_longest(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.1f} / {max(seconds):.1f}" if seconds else "-"
