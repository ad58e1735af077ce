"""On Pub/Sub: requests per second beside a bare pull-and-ack loop, and a gate that flaps.

The servers are the tests' own, written in Python, and Google's emulator where its SDK is installed;
neither is the service, so what counts are the ratios.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

from async_processor.errors import BrokerUnavailable
from async_processor.google_io.client import EMULATOR_VARIABLE
from async_processor.redis_io.connect import open_client
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.pubsub_emulator import PubSubEmulator, emulator_binary
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.testing.pubsub_fleet import pubsub_settings, requests
from async_processor.testing.pubsub_scene import REQUESTS_SUB, PubSubScene
from async_processor.testing.servers import RedisServer, free_port
from benchmarks.gateway import instant_gateway
from benchmarks.processes import cpu_seconds, running
from benchmarks.report import Cell, Report

_WORKERS: Final = 64
_KEY: Final = "dispatch-gate-budget"
_WARM_UP: Final = 4 * _WORKERS


async def pubsub(*, count: int = 5_000, turns: int = 3) -> Report:
    """Compare on each server."""
    names = ["fake", *(["emulator"] if emulator_binary() else [])]
    rows = [await _compared(name, count, turns) for name in names]
    title = f"Pub/Sub: {count:,} requests, {_WORKERS} workers, an instant server, {turns} turns"
    return Report(name="pubsub", title=title, rows=rows)


async def _compared(name: str, count: int, turns: int) -> Mapping[str, Cell]:
    async with _server(name) as host, instant_gateway() as gateway:
        scene = PubSubScene(host)
        await scene.open()
        os.environ[EMULATOR_VARIABLE] = host
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            settings = pubsub_settings(gateway.url, workers=_WORKERS)
            bare, rates, cpu = [], [], []
            for turn in range(turns):
                bare.append(await _bare(scene, count))
                async with DaemonProcess(settings, Path(folder) / str(turn)) as daemon:
                    await _worked_off(scene, daemon, _WARM_UP)
                    used = cpu_seconds(daemon.process.pid)
                    rates.append(count / await _worked_off(scene, daemon, count))
                    cpu.append((cpu_seconds(daemon.process.pid) - used) / count * 1000)
        await scene.close()
    return {
        "server": name,
        "bare pull and ack, messages/s": median(bare),
        "req/s": median(rates),
        "CPU, s per 1,000": median(cpu),
        "ratio": median(rate / most for rate, most in zip(rates, bare, strict=True)),
    }


@asynccontextmanager
async def _server(name: str) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if name == "emulator":
            yield stack.enter_context(PubSubEmulator()).host
            return
        port = free_port()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        command = (sys.executable, "-m", "benchmarks.pubsub_server", str(port))
        await stack.enter_async_context(running(command, folder / "log"))
        await _reachable(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"


async def _reachable(host: str) -> None:
    while True:
        scene = PubSubScene(host)
        try:
            await scene.open()
        except BrokerUnavailable:
            await asyncio.sleep(0.1)
        else:
            return
        finally:
            await scene.close()


async def _bare(scene: PubSubScene, count: int) -> float:
    """Messages per second of a loop that pulls as many as there are workers, and acknowledges."""
    await scene.submit(*requests(count))
    started, done = time.perf_counter(), 0
    while done < count:
        found = await scene.client.pull(REQUESTS_SUB, _WORKERS)
        await scene.client.acknowledge(REQUESTS_SUB, [one.ack_id for one in found])
        done += len(found)
    return done / (time.perf_counter() - started)


async def _worked_off(scene: PubSubScene, daemon: DaemonProcess, count: int) -> float:
    """Seconds from a whole backlog, written while the daemon stands still, to its last result."""
    scene.answers.clear()
    daemon.send(signal.SIGSTOP)
    await scene.submit(*requests(count))
    started = time.perf_counter()
    daemon.send(signal.SIGCONT)
    while len(scene.answers) < count:
        await scene.collect()
    return time.perf_counter() - started


async def pubsub_gate(*, seconds: float = 60.0, delay: float = 0.1) -> Report:
    """A gate that is open, and one that opens and closes every second."""
    rows = []
    async with PubSubFake() as fake, instant_gateway(delay) as gateway:
        os.environ[EMULATOR_VARIABLE] = fake.host
        scene = PubSubScene(fake.host)
        await scene.open()
        with RedisServer() as redis, tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            gate = {"type": "redis", "url": redis.url, "budget_key": _KEY}
            settings = pubsub_settings(gateway.url, workers=16, gate=gate)
            async with DaemonProcess(settings, Path(folder)) as daemon:
                await scene.submit(*requests(50_000, left=86_400))
                for name, period in (("always open", 0.0), ("a second open, one closed", 1.0)):
                    rows.append(await _flapping(name, fake, daemon, redis.url, seconds, period))
                await daemon.kill()
        await scene.close()
    title = f"A gate on Pub/Sub: {seconds:g} s each, 16 workers, calls of {delay:g} s"
    return Report(name="pubsub-gate", title=title, rows=rows)


async def _flapping(
    name: str, fake: PubSubFake, daemon: DaemonProcess, redis: str, seconds: float, period: float
) -> Mapping[str, Cell]:
    client = open_client(redis)
    calls, pulls = await daemon.metric("dispatched_requests_total"), fake.calls["Pull"]
    started = time.perf_counter()
    is_open, open_for = True, 0.0
    await client.execute("SET", _KEY, "1")
    while (left := started + seconds - time.perf_counter()) > 0:
        since = time.perf_counter()
        await asyncio.sleep(min(left, period or left))
        open_for += (time.perf_counter() - since) * is_open
        if period:
            is_open = not is_open
            await client.execute("SET", _KEY, "1" if is_open else "0")
    made = await daemon.metric("dispatched_requests_total") - calls
    subscription = fake.broker.subscriptions[REQUESTS_SUB]
    await client.close()
    return {
        "gate": name,
        "calls/s": made / seconds,
        "calls per open second": made / open_for,
        "pulls/s": (fake.calls["Pull"] - pulls) / seconds,
        "messages leased at the end": len(subscription.leases),
    }
