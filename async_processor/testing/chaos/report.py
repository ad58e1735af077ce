"""A verdict as the tables of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from async_processor.testing.chaos.verdict import Share, Verdict

_COLUMNS: Final = (
    "fault",
    "injected",
    "requests",
    "results",
    "lost",
    "duplicated",
    "executed again",
    "recovery, median / longest (s)",
)


def table(verdict: Verdict) -> str:
    """A row for each kind of fault, and one for the whole trial."""
    rows = [_row(share) for share in verdict.shares]
    rows.append(
        (
            f"**{verdict.name}**",
            verdict.faults,
            verdict.requests,
            verdict.results,
            len(verdict.lost),
            len(verdict.duplicated),
            verdict.executed_again,
            verdict.recovery,
        )
    )
    return "\n".join(_lines(rows))


def summary(verdict: Verdict) -> str:
    """What the table does not say."""
    kinds = ", ".join(f"{kind}: {count}" for kind, count in sorted(verdict.kinds.items()))
    return "\n".join(
        (
            f"{verdict.requests} requests, {verdict.results} results ({kinds})",
            f"{verdict.calls} executions, unexplained repetitions: {len(verdict.unexplained)}",
            f"{verdict.faults} faults, {verdict.kills} processes died by SIGKILL",
            f"{verdict.missed} did not die at the probe point that was meant",
            f"{verdict.seconds:.0f} s",
            *(f"PROBLEM: {problem}" for problem in verdict.problems),
        )
    )


def _row(share: Share) -> Sequence[object]:
    return (
        share.fault,
        share.injected,
        share.requests,
        share.results,
        share.lost,
        share.duplicated,
        share.executed_again,
        share.recovery,
    )


def _lines(rows: Iterable[Sequence[object]]) -> Iterable[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|---{'|---:' * (len(_COLUMNS) - 1)}|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
