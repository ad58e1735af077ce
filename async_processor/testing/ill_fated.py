"""The installed command in a process with faults of its own, told by its environment.

python -m async_processor.testing.ill_fated run --config FILE

* DIE_AT=retry:after:2  SIGKILL itself at the second retry it settles: `before` Redis hears of it,
  or `after` Redis has executed it and before anybody here knows
* CLOCK=600             the wall clock is so many seconds ahead
* CLOCK=600:3           it jumps every 3 s: right, ahead, right, behind, and so on
* NO_DNS=FILE           names cannot be resolved while that file exists
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import connector

from async_processor.cli.main import main
from async_processor.redis_io import scripts
from async_processor.redis_io.client import Argument, RedisClient
from async_processor.redis_io.scripts import Script

MODULE: Final = "async_processor.testing.ill_fated"
MOMENTS: Final = ("before", "after")
STEPS: Final[Mapping[str, tuple[Script, str]]] = {
    "claim": (scripts.CLAIM, ""),
    "post": (scripts.SETTLE, "post"),
    "retry": (scripts.SETTLE, "retry"),
    "release": (scripts.SETTLE, "release"),
    "extend": (scripts.EXTEND, ""),
    "reclaim": (scripts.RECLAIM, ""),
    "promote": (scripts.PROMOTE, ""),
    "give_back": (scripts.GIVE_BACK, ""),
}
"""Where a process may die: a script, and for settlements what is among the outcomes."""


class ProbePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where this process dies: at the `turn`-th time that it takes this step."""

    step: str
    moment: str
    turn: int = 1

    def __str__(self) -> str:
        return f"{self.step}:{self.moment}:{self.turn}"

    @classmethod
    def read(cls, text: str) -> ProbePoint:
        """Raises ValueError."""
        step, moment, turn = text.split(":")
        if step not in STEPS or moment not in MOMENTS:
            raise ValueError(f"{text} is no probe point: one of {', '.join(STEPS)}")
        return cls(step=step, moment=moment, turn=int(turn))


class Probe:
    """Stands in front of `Script.run`."""

    def __init__(self, point: ProbePoint, die: Callable[[], None]) -> None:
        self._script, self._outcome = STEPS[point.step]
        self._point = point
        self._turns_left = point.turn
        self._die = die
        self._run = Script.run

    async def run(
        self,
        script: Script,
        client: RedisClient,
        keys: Sequence[str],
        arguments: Sequence[Argument],
    ) -> Any:
        """Like `Script.run`, unless this is the point."""
        here = script is self._script and (not self._outcome or self._outcome in arguments)
        if here and self._point.moment == "before":
            self._arrive()
        answer = await self._run(script, client, keys, arguments)
        # A reclaim that took nothing back was none.
        if here and self._point.moment == "after" and answer:
            self._arrive()
        return answer

    def _arrive(self) -> None:
        self._turns_left -= 1
        if self._turns_left == 0:
            self._die()


def wrong_time(told: str) -> Callable[[], float]:
    """A wall clock as CLOCK describes it."""
    ahead, _, every = told.partition(":")
    right = time.time

    def offset() -> float:
        if not every:
            return float(ahead)
        return float(ahead) * (0, 1, 0, -1)[int(time.monotonic() / float(every)) % 4]

    return lambda: right() + offset()


class FailingResolver(aiohttp.ThreadedResolver):
    """Resolves no name while a file exists."""

    absent_while: Path

    async def resolve(self, *where: Any, **more: Any) -> Any:
        if self.absent_while.exists():
            raise OSError(None, "the name server does not answer")
        return await super().resolve(*where, **more)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _install(probe: Probe) -> None:
    async def run(
        script: Script, client: RedisClient, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        return await probe.run(script, client, keys, arguments)

    Script.run = run  # type: ignore[method-assign,assignment]


def _suffer(environment: Mapping[str, str]) -> None:
    if told := environment.get("DIE_AT"):
        _install(Probe(ProbePoint.read(told), _die))
    if told := environment.get("CLOCK"):
        time.time = wrong_time(told)
    if told := environment.get("NO_DNS"):
        FailingResolver.absent_while = Path(told)
        connector.DefaultResolver = FailingResolver  # type: ignore[attr-defined]


if __name__ == "__main__":
    _suffer(os.environ)
    main()
