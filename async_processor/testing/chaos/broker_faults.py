"""Faults of Redis itself, and of the way to it."""

from __future__ import annotations

import asyncio
from typing import Final

from async_processor.redis_io.scripts import CLAIM, EXTEND, SETTLE
from async_processor.testing.chaos.fault import Fault, Scope, Strike, fault

_SCRIPTS: Final = (CLAIM, SETTLE, EXTEND)
_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.02


@fault("Redis killed and started again", Scope.BROKER)
async def redis_killed(on: Strike) -> None:
    await asyncio.to_thread(on.stage.broker.kill)
    await asyncio.sleep(on.random.uniform(0, 1))
    await asyncio.to_thread(on.stage.broker.start)


@fault("Redis away for longer than a lease", Scope.BROKER)
async def redis_away(on: Strike) -> None:
    await asyncio.to_thread(on.stage.broker.kill)
    await asyncio.sleep(1.5 * on.stage.scene.lease)
    await asyncio.to_thread(on.stage.broker.start)


@fault("Redis paused", Scope.BROKER)
async def redis_paused(on: Strike) -> None:
    async with on.stage.broker_frozen():
        await asyncio.sleep(on.random.uniform(0.5, 1.5 * on.stage.scene.lease))


@fault("Redis read-only", Scope.BROKER)
async def redis_read_only(on: Strike) -> None:
    """It follows a master that is not there."""
    await on.stage.asking.execute("REPLICAOF", "127.0.0.1", 1)
    await asyncio.sleep(on.random.uniform(0.5, 3))
    await on.stage.asking.execute("REPLICAOF", "NO", "ONE")


@fault("Redis out of memory", Scope.BROKER)
async def redis_full(on: Strike) -> None:
    await on.stage.asking.execute("CONFIG", "SET", "maxmemory", 1)
    await asyncio.sleep(on.random.uniform(0.5, 3))
    await on.stage.asking.execute("CONFIG", "SET", "maxmemory", 0)


@fault("SCRIPT FLUSH", Scope.BROKER)
async def script_flush(on: Strike) -> None:
    await on.stage.asking.execute("SCRIPT", "FLUSH")


@fault("CLIENT KILL of everybody", Scope.BROKER)
async def client_kill(on: Strike) -> None:
    for kind in ("normal", "pubsub"):
        await on.stage.asking.execute("CLIENT", "KILL", "TYPE", kind)


@fault("answer of Redis lost", Scope.REPLICA)
async def answer_lost(on: Strike) -> None:
    """The classic double: the script was executed, and its caller never hears of it."""
    await _lose(on, on.random.choice(_SCRIPTS).digest)


@fault("answer to the posting of a result lost", Scope.REPLICA)
async def settlement_lost(on: Strike) -> None:
    await _lose(on, SETTLE.digest)


@fault("broker connections cut", Scope.REPLICA)
async def cut(on: Strike) -> None:
    on.replica.broker.cut()


@fault("broker answer torn, connection reset", Scope.REPLICA)
async def torn(on: Strike) -> None:
    on.replica.broker.tear()
    await asyncio.sleep(on.random.uniform(0.5, 1))
    on.replica.broker.heal()


@fault("broker out of a replica's reach", Scope.REPLICA)
async def out_of_reach(on: Strike) -> None:
    on.replica.broker.down()
    await asyncio.sleep(on.random.uniform(0.5, 2 * on.stage.scene.lease))
    on.replica.broker.heal()


@fault("broker connection half-open", Scope.REPLICA)
async def half_open(on: Strike) -> None:
    """Bytes stop without a word, and what was sent meanwhile is executed late."""
    on.replica.broker.stall()
    await asyncio.sleep(on.random.uniform(0.5, 3 * on.stage.scene.lease))
    on.replica.broker.heal()


@fault("broker slow", Scope.REPLICA)
async def slow(on: Strike) -> None:
    on.replica.broker.delay = on.random.uniform(0.05, 0.4)
    await asyncio.sleep(on.random.uniform(2, 4))
    on.replica.broker.heal()


async def _lose(on: Strike, digest: str) -> None:
    before = on.replica.broker.lost_answers
    on.replica.broker.lose_answer_to(digest.encode())
    for _ in range(_LOOKS):
        if on.replica.broker.lost_answers > before:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    on.replica.broker.heal()


ALL: Final[tuple[Fault, ...]] = (
    redis_killed,
    redis_away,
    redis_paused,
    redis_read_only,
    redis_full,
    script_flush,
    client_kill,
    answer_lost,
    settlement_lost,
    cut,
    torn,
    out_of_reach,
    half_open,
    slow,
)
