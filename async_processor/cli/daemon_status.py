"""Asks a daemon for its own `/status`, and says in words when it does not tell."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import without_password

_SECONDS: Final = 10.0
"""A daemon itself waits for its broker, and one of several processes for a process that hangs."""


class ToldQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon says about one of its queues, as far as `status` uses it."""

    queue_id: str
    queue_name: str
    pool_name: str
    backlog: int | None = None
    inflight: int | None = None
    gate: dict[str, Any] = {}
    why: str = ""


class ToldProcess(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon of several processes says about one of them."""

    process: int
    ready: bool
    why: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon's `/status`."""

    ready: bool
    queues: tuple[ToldQueue, ...]
    pools: tuple[dict[str, Any], ...] = ()
    processes: tuple[ToldProcess, ...] = ()
    """Empty of a daemon of one process."""

    def queue(self, name: str) -> ToldQueue | None:
        """What it says about the queue; None when it does not work on it."""
        return next((queue for queue in self.queues if queue.queue_name == name), None)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of asking: `told`, or else `fault` in words.

    `silent` is the URL where nobody answers; who answers something else is alive all the same.
    """

    told: Told | None = None
    fault: str = ""
    silent: str = ""

    def queue(self, name: str) -> ToldQueue | None:
        """What was told about the queue."""
        return self.told.queue(name) if self.told else None


def ask(url: str, token: str) -> Asked:
    """Ask the daemon whose health port `url` is; an empty URL asks nobody.

    Raises ConfigurationError when it is no URL.
    """
    if not url:
        return Asked()
    import httpx

    place = without_password(url)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(f"{url.rstrip('/')}/status", headers=headers, timeout=_SECONDS)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        message = f"got {place!r}, must be the URL of a health port, e.g. http://localhost:8081"
        raise ConfigurationError([Problem(path="--daemon", message=message)]) from None
    except httpx.TransportError:
        return Asked(fault=f"no daemon answers at {place}", silent=place)
    return _heard(answer.status_code, answer.content, place, with_token=bool(token))


def _heard(status: int, content: bytes, place: str, *, with_token: bool) -> Asked:
    if status == 401:
        wrong = "refuses the token" if with_token else "asks for a token"
        return Asked(
            fault=f"the daemon at {place} {wrong}: give its server.bearer_token as --token"
        )
    try:
        return Asked(told=msgspec.json.decode(content, type=Told))
    except msgspec.MsgspecError:
        return Asked(fault=f"what answers at {place} is no daemon's health port (HTTP {status})")
