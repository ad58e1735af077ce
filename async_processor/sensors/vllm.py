"""How much room the pods of a vLLM pool have, from their own metrics pages.

A pod's room is the smallest remaining share of its limits, the pool's the mean of its pods': 1 is
idle, 0 full. A pod that cannot be read counts as full; when none can, neither can the pool. With
no waiting request allowed (a limit of 0) one that waits anywhere closes the whole pool. Where the
running requests are limited, the room is of so many places.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx
import msgspec

from async_processor.sensors.base import SHOWS_WITHIN, BadAnswer, Measurement, NoAnswer
from async_processor.sensors.exposition import NotExposition, values
from async_processor.sensors.pages import fetch, shown

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
KV_CACHE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""The name of today, and the older one; the first that a pod has counts."""


class PodLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod counts as full: a share of its KV cache in (0, 1], and numbers of requests."""

    kv_cache: float
    waiting: float
    running: float | None = None


class PodLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is doing now; of several engines in one pod the fullest cache counts."""

    kv_cache: float
    waiting: float
    running: float

    def room(self, limits: PodLimits) -> float:
        """The smallest remaining share of the limits, in [0, 1]."""
        shares = [_remaining(self.kv_cache, limits.kv_cache)]
        shares.append(_remaining(self.waiting, limits.waiting))
        if limits.running is not None:
            shares.append(_remaining(self.running, limits.running))
        return min(shares)


def _remaining(used: float, limit: float) -> float:
    """Of a limit of 0 everything remains as long as nothing is used."""
    if limit <= 0:
        return 1.0 if used <= 0 else 0.0
    return min(1.0, max(0.0, 1.0 - used / limit))


def places(pods: int, limits: PodLimits) -> float | None:
    """How many requests so many idle pods have room for; None: for any number."""
    return None if limits.running is None else pods * limits.running


def pool_room(loads: Sequence[PodLoad | None], limits: PodLimits) -> float:
    """The pool's room; None stands for a pod that cannot be read."""
    if limits.waiting <= 0 and any(load.waiting > 0 for load in loads if load is not None):
        return 0.0
    rooms = [load.room(limits) if load is not None else 0.0 for load in loads]
    return math.fsum(rooms) / len(rooms)


def most(loads: Sequence[PodLoad]) -> PodLoad:
    """The highest of each figure in any pod."""
    return PodLoad(
        kv_cache=max(load.kv_cache for load in loads),
        waiting=max(load.waiting for load in loads),
        running=max(load.running for load in loads),
    )


def in_words(most: PodLoad) -> str:
    """What has filled the pool is among the highest figures."""
    return (
        f"in a pod at most: KV cache {most.kv_cache:.0%}, {most.waiting:g} waiting,"
        f" {most.running:g} running"
    )


def read_load(page: str) -> PodLoad:
    """What a pod's metrics page says of its load.

    Raises:
        BadAnswer: it is another page, or lacks one of the series, or a value is no number.
    """
    return PodLoad(
        kv_cache=_found(page, KV_CACHE, max),
        waiting=_found(page, (WAITING,), math.fsum),
        running=_found(page, (RUNNING,), math.fsum),
    )


def _found(
    page: str, metrics: Sequence[str], together: Callable[[Sequence[float]], float]
) -> float:
    for metric in metrics:
        try:
            found = values(page, metric, {})
        except NotExposition as error:
            raise BadAnswer(str(error)) from error
        if found:
            if not all(map(math.isfinite, found)):
                raise BadAnswer(f"the value of {metric} is no number")
            return together(found)
    raise BadAnswer(f"has no series {metrics[0]}")


@dataclass(frozen=True, kw_only=True)
class PodsSource:
    """Reads every pod's page at once.

    The pods are at `urls`, metrics pages, or at every address of `dns`, a host:port that is looked
    up anew for each look.
    """

    urls: tuple[str, ...] = ()
    dns: str = ""
    limits: PodLimits
    client: httpx.AsyncClient = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """Where the pods are."""
        return f"vLLM pods at {self.dns or ', '.join(map(shown, self.urls))}"

    async def read(self, timeout: float) -> Measurement:
        """Read once; raises as every `Source` does."""
        urls = self.urls or await _pages_behind(self.dns, timeout)
        pods = await asyncio.gather(*(self._pod(url, timeout) for url in urls))
        failures = [pod for pod in pods if not isinstance(pod, PodLoad)]
        if len(failures) == len(pods):
            raise failures[0]
        loads = [pod if isinstance(pod, PodLoad) else None for pod in pods]
        read = [load for load in loads if load is not None]
        room, capacity = pool_room(loads, self.limits), places(len(loads), self.limits)
        unread = f"{len(failures)} of {len(pods)} pods: {failures[0]}" if failures else ""
        return Measurement(
            value=room,
            capacity=capacity,
            lag=0.0 if capacity is None else SHOWS_WITHIN,
            note=unread if room else "; ".join(filter(None, (unread, in_words(most(read))))),
        )

    async def _pod(self, url: str, timeout: float) -> PodLoad | NoAnswer | BadAnswer:
        try:
            answer = await fetch(
                self.client, url, accept="text/plain;version=0.0.4", timeout=timeout
            )
            if not answer.is_success:
                return BadAnswer(f"{shown(url)} answered {answer.status_code}")
            return read_load(answer.content.decode())
        except NoAnswer as error:
            return error
        except (BadAnswer, UnicodeDecodeError) as error:
            return BadAnswer(f"{shown(url)}: {error}")


async def _pages_behind(dns: str, timeout: float) -> Sequence[str]:
    host, _, port = dns.rpartition(":")
    try:
        async with asyncio.timeout(timeout):
            found = await asyncio.get_running_loop().getaddrinfo(
                host, int(port), type=socket.SOCK_STREAM
            )
    except TimeoutError as error:
        raise NoAnswer(f"the name {host} was not resolved within {timeout:g} s") from error
    except OSError as error:
        raise NoAnswer(f"the name {host} cannot be resolved: {error}") from error
    addresses = sorted({str(entry[4][0]) for entry in found})
    return [f"http://{_bracketed(address)}:{port}/metrics" for address in addresses]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
