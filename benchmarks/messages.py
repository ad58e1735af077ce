"""The load: envelopes as producers write them, and the backlog that appears at one stroke."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Final

import msgspec

from async_processor.redis_io.client import Command
from async_processor.wire.names import active_key, cancel_key

QUEUE: Final = "request-sortedset"
RESULTS: Final = "result-list"
RETRIES: Final = "retry-sortedset"
ASIDE: Final = "benchmark-backlog"
"""Where a backlog is written before it is renamed to the queue."""

_LIFETIME: Final = 3600
_AT_ONCE: Final = 500
_BYTES_AT_ONCE: Final = 2**23


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its body, its score, and what its producer keeps for cancelling it."""

    id: str
    token: str
    body: bytes
    score: float


def payload(size: int) -> bytes:
    """A completion request of about so many bytes."""
    prompt = "hello " * max(1, (size - 40) // 6)
    return msgspec.json.encode({"model": "m", "prompt": prompt, "max_tokens": 16})


def messages(count: int, body: bytes, *, lifetime: int = _LIFETIME) -> Iterator[Message]:
    """So many requests with the same payload, due in `lifetime` seconds."""
    return messages_of(repeat(body, count), lifetime=lifetime)


def messages_of(bodies: Iterable[bytes], *, lifetime: int = _LIFETIME) -> Iterator[Message]:
    """A request for each payload, due in `lifetime` seconds; below 0 the deadline has passed."""
    created = int(time.time())
    deadline = created + lifetime
    run = secrets.token_hex(4)
    for number, body in enumerate(bodies):
        id_, token = f"b-{run}-{number}", secrets.token_hex(16)
        written = msgspec.json.encode(
            {
                "internal": {
                    "request_token": token,
                    "request_queue_name": QUEUE,
                    "enqueue_seq": number + 1,
                },
                "request_kind": "redis",
                "data": {
                    "id": id_,
                    "created": created,
                    "deadline": deadline,
                    "payload": msgspec.Raw(body),
                    "metadata": {"userid": f"team-{number % 3}"},
                },
            }
        )
        yield Message(id=id_, token=token, body=written, score=deadline + number / 2097152)


def laid_aside(load: Iterable[Message], *, key: str = ASIDE) -> Iterator[list[Command]]:
    """The commands that write a backlog where no processor looks, in pipelines."""
    batch: list[Command] = []
    size = 0
    for message in load:
        batch.append(("SET", active_key(message.id), message.token, "EX", _LIFETIME))
        batch.append(("ZADD", key, message.score, message.body))
        size += len(message.body)
        if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def cancelled(load: Iterable[Message]) -> Iterator[list[Command]]:
    """The commands that cancel requests, in pipelines."""
    marks: Iterator[Command] = (
        ("SET", cancel_key(each.id), each.token, "EX", _LIFETIME) for each in load
    )
    while batch := list(islice(marks, _AT_ONCE)):
        yield batch
