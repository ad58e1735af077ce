"""What becomes of very many requests at one stroke: cancelled, expired, to be tried again.

Each is done with a quarter of the requests and with all of them: what a request costs must not
grow with their number. Meanwhile the daemon's loop is watched (`stall_watch.py`), for whatever
holds it up holds up every other request, the leases and the probes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.contender import CLOSED, WITH_PROMETHEUS, Contender, our_configuration
from benchmarks.gateway import Gateway, instant_gateway
from benchmarks.messages import QUEUE, RETRIES, Message, cancelled, messages, payload
from benchmarks.processes import cpu_seconds
from benchmarks.report import Cell, Report
from benchmarks.stage import Stage, stage
from benchmarks.stall_watch import Stall, stalls_noted

_WATCHED: Final = "{python} -m benchmarks.stall_watch %s run --config {config}"
_BODY: Final = payload(100)
_PATIENCE: Final = 1200.0
_FOR_EVER: Final = 3600.0
_LONG: Final = 0.05
_AIMS: Final = (
    "aims: no stall above 50 ms, and as much CPU (seconds per 1,000 requests) for all as for a"
    " quarter. `busy` is the CPU time within the longest stall, `held up` with what others took."
)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon stands before: `lifetime` and `delay` (of a call) in seconds.

    `failures` first calls fail for each request, and the backlog is released `to` a sorted set.
    With `held`, every request is in flight before all are cancelled.
    """

    what: str
    workers: int = 256
    gate: str = "{type: constant}"
    lifetime: int = 3600
    delay: float = 0.0
    failures: int = 0
    to: str = QUEUE
    cancelled: bool = False
    held: bool = False


SCENES: Final = (
    Scene(what="cancelled while they wait", cancelled=True),
    Scene(what="expired behind a closed gate", gate=CLOSED, lifetime=-1),
    Scene(what="failed once and retried", failures=1),
    Scene(what="retries due at the same moment", to=RETRIES),
)


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """From one monotonic time to another; CPU time in seconds, for all requests together."""

    since: float
    until: float
    cpu: float
    broker_cpu: float
    stalls: Sequence[Stall] = ()


async def bulk(*, requests: int = 100_000, in_flight: int = 10_000) -> Report:
    """Play every scene with a quarter and with all; `in_flight` are cancelled in their calls."""
    held = Scene(
        what="cancelled in flight", workers=in_flight, delay=_FOR_EVER, cancelled=True, held=True
    )
    plays = [(scene, count) for scene in SCENES for count in (requests // 4, requests)]
    plays += [(held, count) for count in (in_flight // 4, in_flight)]
    rows = [_row(scene, count, await played(scene, count)) for scene, count in plays]
    title = f"Bulk: {requests:,} requests at one stroke"
    return Report(name="bulk", title=title, rows=rows, aims=_AIMS)


async def played(scene: Scene, count: int) -> Played:
    """Play a scene with so many requests before a daemon of its own."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        notes = Path(folder) / "stalls"
        struck = await _struck(scene, count, notes)
        noted = stalls_noted(notes)  # they are written when the daemon ends
    stalls = [stall for stall in noted if struck.since < stall.at < struck.until]
    return msgspec.structs.replace(struck, stalls=stalls)


async def _struck(scene: Scene, count: int, notes: Path) -> Played:
    configuration = our_configuration(gate=scene.gate) + WITH_PROMETHEUS
    contender = Contender(command=_WATCHED % notes, configuration=configuration)
    async with (
        stage() as here,
        instant_gateway(scene.delay, failures=scene.failures * count) as gateway,
        here.processor(contender, gateway.url, workers=scene.workers) as processor,
    ):
        load = _load(scene, count)
        await here.lay_aside_messages(load)
        await _prepare(scene, here, gateway, load)
        pids = (processor.pid, here.server.pid)
        before, since = [cpu_seconds(pid) for pid in pids], time.monotonic()
        await _strike(scene, here, load)
        await here.results(count, patience=_PATIENCE)
        until, after = time.monotonic(), [cpu_seconds(pid) for pid in pids]
    cpu, broker_cpu = (end - start for start, end in zip(before, after, strict=True))
    return Played(since=since, until=until, cpu=cpu, broker_cpu=broker_cpu)


def _load(scene: Scene, count: int) -> Sequence[Message]:
    load = list(messages(count, _BODY, lifetime=scene.lifetime))
    if scene.to == RETRIES:
        return [msgspec.structs.replace(each, score=1.0) for each in load]
    return load


async def _prepare(scene: Scene, here: Stage, gateway: Gateway, load: Sequence[Message]) -> None:
    if scene.held:
        await here.release()
        await gateway.holding(len(load))
    elif scene.cancelled:
        await here.send(cancelled(load))


async def _strike(scene: Scene, here: Stage, load: Sequence[Message]) -> None:
    if scene.held:
        await here.send(cancelled(load))
    else:
        await here.release(to=scene.to)


def _row(scene: Scene, count: int, done: Played) -> Mapping[str, Cell]:
    longest = max(done.stalls, key=lambda stall: stall.busy, default=None)
    return {
        "what": scene.what,
        "requests": count,
        "seconds": done.until - done.since,
        "CPU": done.cpu * 1000 / count,
        "broker CPU": done.broker_cpu * 1000 / count,
        "busy ms": longest.busy * 1000 if longest else 0,
        "held up ms": longest.held_up * 1000 if longest else 0,
        "busy > 50 ms": sum(stall.busy > _LONG for stall in done.stalls),
    }
