"""From publishing to the call, on an idle queue.

The clock runs from before the publisher sends its command until the inference server has read the
call; both read the machine's monotonic clock, and the server's reading comes back in the result.
Between two requests the queue is left alone for a while, so that every one finds it idle.

What the machine allows at that moment is told by a PING of the driver, one round trip to the
broker.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from statistics import quantiles
from typing import Final

import msgspec

from async_processor.producer import Producer, Submission
from benchmarks.contender import Contender
from benchmarks.gateway import instant_gateway
from benchmarks.messages import QUEUE, RESULTS, messages, payload
from benchmarks.processes import BenchmarkFailed
from benchmarks.report import Cell, Report
from benchmarks.stage import Stage, stage

_WARM_UP: Final = 5
_WORKERS: Final = 64
_PATIENCE: Final = 10
_BODY: Final = payload(100)
_AIMS: Final = "aims: 10 and 60 ms for a plain ZADD, 2 and 10 ms through our producer"

Publish = Callable[[], Awaitable[None]]


class _Arrival(msgspec.Struct):
    """What the instant server says of a call."""

    arrived: float


async def latency(contender: Contender, *, samples: int = 200) -> Report:
    """Measure both ways of publishing, by turns."""
    async with (
        stage() as here,
        instant_gateway() as gateway,
        here.processor(contender, gateway.url, workers=_WORKERS),
        Producer(here.broker, result_queue=RESULTS) as producer,
    ):
        ways = {
            "plain ZADD": partial(_one, here, _by_zadd(here)),
            "our producer": partial(_one, here, _by_producer(producer)),
            "a PING, beside them": partial(_ping, here),
        }
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(_WARM_UP + samples):
            for way, measure in ways.items():
                await asyncio.sleep(random.uniform(0.02, 0.08))
                milliseconds = await measure()
                if number >= _WARM_UP:
                    taken[way].append(milliseconds)
    rows = [_row(way, each) for way, each in taken.items()]
    title = f"Latency: from publishing to the call on an idle queue, {samples} times each, in ms"
    return Report(name="latency", title=title, rows=rows, aims=_AIMS)


def _by_zadd(here: Stage) -> Publish:
    async def publish() -> None:
        (message,) = messages(1, _BODY)
        await here.ask("ZADD", QUEUE, message.score, message.body)

    return publish


def _by_producer(producer: Producer) -> Publish:
    async def publish() -> None:
        await producer.submit(Submission(payload=_BODY, deadline="1h"), mailbox=False)

    return publish


async def _one(here: Stage, publish: Publish) -> float:
    """Milliseconds from publishing to the call."""
    start = time.monotonic()
    await publish()
    answer = (await here.next_result(patience=_PATIENCE)).payload
    try:
        return (msgspec.json.decode(answer, type=_Arrival).arrived - start) * 1000
    except msgspec.MsgspecError:
        raise BenchmarkFailed(f"a result without the server's answer: {answer[:500]!r}") from None


async def _ping(here: Stage) -> float:
    """Milliseconds of a round trip to the broker."""
    start = time.monotonic()
    await here.ask("PING")
    return (time.monotonic() - start) * 1000


def _row(way: str, milliseconds: list[float]) -> Mapping[str, Cell]:
    percentiles = quantiles(milliseconds, n=100, method="inclusive")
    return {
        "what": way,
        "p50": percentiles[49],
        "p90": percentiles[89],
        "p99": percentiles[98],
        "most": max(milliseconds),
    }
