"""Faults of the inference server, and of the way to it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from async_processor.testing.chaos.fault import Fault, Scope, Strike, fault

_HUGE: Final = 50 * 2**20
_SHARE: Final = 0.5


@fault("inference refuses connections", Scope.INFERENCE)
async def refusing(on: Strike) -> None:
    await on.stage.front.close()
    await asyncio.sleep(on.random.uniform(0.5, 2))
    await on.stage.front.open()


def spoiling(name: str, seconds: float = 2.0, **switches: Any) -> Fault:
    """For a while the pool's fault switches stand like this."""

    async def act(on: Strike) -> None:
        on.stage.front.spoil(**switches)
        await asyncio.sleep(on.random.uniform(seconds / 2, seconds))
        on.stage.front.calm()

    return Fault(name=f"inference {name}", act=act, scope=Scope.INFERENCE)


@fault("inference connections cut", Scope.REPLICA)
async def cut(on: Strike) -> None:
    on.replica.inference.cut()


@fault("inference connection half-open", Scope.REPLICA)
async def half_open(on: Strike) -> None:
    on.replica.inference.stall()
    await asyncio.sleep(on.random.uniform(0.5, 3))
    on.replica.inference.heal()


@fault("inference answer torn, connection reset", Scope.REPLICA)
async def torn(on: Strike) -> None:
    on.replica.inference.tear()
    await asyncio.sleep(on.random.uniform(0.5, 1))
    on.replica.inference.heal()


ALL: Final[tuple[Fault, ...]] = (
    refusing,
    spoiling("resets", reset=_SHARE),
    spoiling("resets in mid-answer", reset_mid_answer=_SHARE),
    spoiling("hangs", hang=_SHARE),
    spoiling("trickles a byte a second", trickle=_SHARE, trickle_seconds=1.0),
    spoiling("answers 50 MB", seconds=0.3, answer_bytes=_HUGE),
    spoiling("answers with a wrong length", wrong_length=_SHARE),
    spoiling("answers a compressed bomb", seconds=1.0, bomb=_SHARE),
    spoiling("answers 500", error=_SHARE),
    spoiling("answers 429", throttle=_SHARE, retry_after=0.2),
    cut,
    half_open,
    torn,
)
