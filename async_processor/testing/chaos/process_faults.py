"""Faults of the daemons' own processes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from async_processor.testing.chaos.fault import Fault, Scope, Strike, fault
from async_processor.testing.daemons import DaemonFailed
from async_processor.testing.eventually import eventually
from async_processor.testing.ill_fated import MOMENTS, ProbePoint

_FATE_SECONDS: Final = 10.0
"""After this a process that has not come to its probe point is killed where it is."""
_START_SECONDS: Final = 60.0
_FEED_SECONDS: Final = 0.1
_EARLY_SECONDS: Final = 1.5
_WHILE_SECONDS: Final = 3.0
_HANDFUL: Final = 20
_TEN_MINUTES: Final = 600
_STEPS: Final = ("claim", "post", "retry", "extend", "promote")


@fault("SIGKILL", Scope.REPLICA, kills=True)
async def sigkill(on: Strike) -> None:
    await on.replica.kill()
    on.died()


def killed_at(step: str, moment: str) -> Fault:
    """SIGKILL exactly before Redis hears of a step, or after it has executed it."""

    async def act(on: Strike) -> None:
        point = ProbePoint(step=step, moment=moment, turn=on.random.randint(1, 3))
        await sigkill.act(on)
        await on.replica.spawn(DIE_AT=str(point))
        async with asyncio.TaskGroup() as life:
            life.create_task(_death(on))
            life.create_task(_meet_fate(on))

    return Fault(name=f"SIGKILL {moment} {step}", act=act, scope=Scope.REPLICA, kills=True)


def killed_in_drain(step: str, moment: str) -> Fault:
    """The same while a drain gives work back."""

    async def act(on: Strike) -> None:
        await _end(on)
        await on.replica.start(DIE_AT=str(ProbePoint(step=step, moment=moment)))
        await on.stage.submit(_HANDFUL)
        await asyncio.sleep(on.stage.scene.latency / 2)
        for _ in range(2):
            on.replica.daemon.send(signal.SIGTERM)
        await on.replica.daemon.ended()
        await _death(on)

    return Fault(
        name=f"SIGKILL {moment} {step} in a drain", act=act, scope=Scope.REPLICA, kills=True
    )


async def _meet_fate(on: Strike) -> None:
    """Give it work until it has died at its probe point, or for long enough."""
    with suppress(DaemonFailed):
        await eventually(on.replica.daemon.ready, within=_START_SECONDS)
    until = time.monotonic() + _FATE_SECONDS
    while on.replica.daemon.running and time.monotonic() < until:
        await on.stage.submit(1)
        await asyncio.sleep(_FEED_SECONDS)
    if on.replica.daemon.running:
        on.stage.missed += 1
        await on.replica.kill()


async def _death(on: Strike) -> None:
    """Wait for the end, and note when it came."""
    if await on.replica.daemon.process.wait() == -signal.SIGKILL:
        on.died()
    else:
        on.stage.missed += 1


@fault("SIGTERM", Scope.REPLICA)
async def sigterm(on: Strike) -> None:
    await _end(on)


@fault("SIGTERM twice", Scope.REPLICA)
async def sigterm_twice(on: Strike) -> None:
    on.replica.daemon.send(signal.SIGTERM)
    await asyncio.sleep(on.random.uniform(0, 0.2))
    if on.replica.daemon.running:
        on.replica.daemon.send(signal.SIGTERM)
    await _ends_well(on)


@fault("SIGTERM during start-up", Scope.REPLICA)
async def sigterm_at_start(on: Strike) -> None:
    await _end(on)
    await on.replica.spawn()
    await asyncio.sleep(on.random.uniform(0, _EARLY_SECONDS))
    on.replica.daemon.send(signal.SIGTERM)
    code = await on.replica.daemon.ended()
    if code not in (0, -signal.SIGTERM):  # before Python runs, the signal itself ends it
        on.stage.complaints.append(f"SIGTERM during start-up: exit code {code}")


@fault("SIGSTOP past the lease, then SIGCONT", Scope.REPLICA)
async def zombie(on: Strike) -> None:
    on.replica.daemon.send(signal.SIGSTOP)
    await asyncio.sleep(on.stage.scene.lease * on.random.uniform(1.3, 2))
    on.replica.daemon.send(signal.SIGCONT)


@fault("clock ten minutes wrong", Scope.REPLICA)
async def wrong_clock(on: Strike) -> None:
    await _live_with(on, CLOCK=str(on.random.choice((-_TEN_MINUTES, _TEN_MINUTES))))


@fault("clock jumping by ten minutes", Scope.REPLICA)
async def jumping_clock(on: Strike) -> None:
    await _live_with(on, CLOCK=f"{_TEN_MINUTES}:{on.random.uniform(0.3, 2):.2f}")


@fault("names not resolved", Scope.REPLICA)
async def no_dns(on: Strike) -> None:
    switch = on.stage.folder / f"{on.replica.name}.no-dns"
    await _end(on)
    await on.replica.start(NO_DNS=str(switch))
    with _present(switch):
        on.replica.inference.cut()  # connections that stand need no name
        await asyncio.sleep(on.random.uniform(2, 4))


@fault("disk full for logs", Scope.REPLICA)
async def full_disk(on: Strike) -> None:
    await _end(on)
    with on.replica.daemon.logging_to(Path("/dev/full")):
        await on.replica.start()
    await asyncio.sleep(on.random.uniform(2, 4))
    if not on.replica.daemon.running:
        on.stage.complaints.append("ended because its log could not be written")


@contextmanager
def _present(file: Path) -> Iterator[None]:
    file.touch()
    try:
        yield
    finally:
        file.unlink()


async def _live_with(on: Strike, **fate: str) -> None:
    await _end(on)
    await on.replica.start(**fate)
    await asyncio.sleep(_WHILE_SECONDS)


async def _end(on: Strike) -> None:
    on.replica.daemon.send(signal.SIGTERM)
    await _ends_well(on)


async def _ends_well(on: Strike) -> None:
    code = await on.replica.daemon.ended()
    if code != 0:
        log = on.replica.daemon.log()[-2000:]
        on.stage.complaints.append(f"exit code {code} after SIGTERM:\n{log}")


PROBED: Final = (
    *(killed_at(step, moment) for step in _STEPS for moment in MOMENTS),
    killed_at("reclaim", "after"),
    killed_in_drain("give_back", "before"),
    killed_in_drain("release", "after"),
)

ALL: Final[tuple[Fault, ...]] = (
    sigkill,
    *PROBED,
    sigterm,
    sigterm_twice,
    sigterm_at_start,
    zombie,
    wrong_clock,
    jumping_clock,
    no_dns,
    full_disk,
)
