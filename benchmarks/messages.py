"""The load: envelopes as producers write them, and the backlog that appears at one stroke."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

import msgspec

from async_processor.redis_io.client import Command
from async_processor.wire.names import active_key

QUEUE: Final = "request-sortedset"
RESULTS: Final = "result-list"
_ASIDE: Final = "benchmark-backlog"
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


def messages(count: int, body: bytes) -> Iterator[Message]:
    """So many requests with the same payload, due in an hour."""
    return messages_of(repeat(body, count))


def messages_of(bodies: Iterable[bytes]) -> Iterator[Message]:
    """A request for each payload, due in an hour."""
    deadline = int(time.time()) + _LIFETIME
    run = secrets.token_hex(4)
    for number, body in enumerate(bodies):
        id_, token = f"b-{run}-{number}", secrets.token_hex(16)
        written = msgspec.json.encode(
            {
                "internal": {"request_token": token, "enqueue_seq": number + 1},
                "request_kind": "redis",
                "data": {
                    "id": id_,
                    "created": deadline - _LIFETIME,
                    "deadline": deadline,
                    "payload": msgspec.Raw(body),
                    "metadata": {"userid": f"team-{number % 3}"},
                },
            }
        )
        yield Message(id=id_, token=token, body=written, score=deadline + number / 2097152)


def laid_aside(bodies: Iterable[bytes]) -> Iterator[list[Command]]:
    """The commands that write a backlog where no processor looks, in pipelines."""
    batch: list[Command] = []
    size = 0
    for message in messages_of(bodies):
        batch.append(("SET", active_key(message.id), message.token, "EX", _LIFETIME))
        batch.append(("ZADD", _ASIDE, message.score, message.body))
        size += len(message.body)
        if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def released() -> Command:
    """The command that puts it all into the queue at one stroke."""
    return ("RENAME", _ASIDE, QUEUE)
