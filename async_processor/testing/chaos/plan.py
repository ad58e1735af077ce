"""Which fault strikes whom and when: follows from the seed alone (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from async_processor.testing.chaos.fault import Fault

_KILL_SHARE: Final = 0.6
"""Of the faults of a mixed plan, how many kill a process."""
_LONGEST_DELAY: Final = 1.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """`pause` seconds after the step before, submit; `delay` seconds later a fault strikes.

    `seed` is for whatever else is random about the fault.
    """

    pause: float
    submit: int
    delay: float
    fault: str
    replica: int
    seed: int


def each(faults: Iterable[Fault], *, seed: int, requests: int, replicas: int) -> list[Step]:
    """Every fault once, in their order, with so many requests for each."""
    names = [fault.name for fault in faults]
    return _steps(Random(seed), names, requests * len(names), 0.0, replicas, longest_delay=0.0)


def mixed(
    faults: Mapping[str, Fault],
    *,
    seed: int,
    requests: int,
    kills: int,
    seconds: float,
    replicas: int,
) -> list[Step]:
    """So many kills, and other faults among them, in random order, over so many seconds."""
    random = Random(seed)
    killing = [name for name, fault in faults.items() if fault.kills]
    others = [name for name, fault in faults.items() if not fault.kills]
    chosen = _each_as_often(random, killing, kills)
    if others:
        chosen += _each_as_often(random, others, round(kills * (1 - _KILL_SHARE) / _KILL_SHARE))
    random.shuffle(chosen)
    pause = seconds / len(chosen)
    return _steps(random, chosen, requests, pause, replicas, longest_delay=_LONGEST_DELAY)


def _each_as_often(random: Random, names: Sequence[str], count: int) -> list[str]:
    """So many in all; none twice more often than another."""
    whole, rest = divmod(count, len(names))
    return [*names] * whole + random.sample(names, rest)


def _steps(
    random: Random,
    faults: Sequence[str],
    requests: int,
    pause: float,
    replicas: int,
    *,
    longest_delay: float,
) -> list[Step]:
    portions = [requests * (n + 1) // len(faults) - requests * n // len(faults)
                for n in range(len(faults))]  # fmt: skip
    return [
        Step(
            pause=random.uniform(0.5, 1.5) * pause,
            submit=portion,
            delay=random.uniform(0, longest_delay),
            fault=fault,
            replica=random.randrange(replicas),
            seed=random.getrandbits(32),
        )
        for fault, portion in zip(faults, portions, strict=True)
    ]
