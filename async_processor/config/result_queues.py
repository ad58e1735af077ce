"""Checks where the configuration sends results: a result pushed onto a request, retry or
dead-letter queue would be taken for a request, and onto a key of the processor's own break it.

Unlike a message, an operator may choose any name in a queue's hash slot that is no such key: on a
cluster the results have to lie there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from async_processor.errors import Problem
from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.wire.names import KEY_BEGINNINGS, go_claim_keys, private_prefix


def result_queue_problems(
    chosen: Sequence[tuple[str, str]], machinery: Mapping[str, str]
) -> Iterator[Problem]:
    """`chosen` are paths and the names there, `machinery` the other queues' names and paths."""
    kept = {key: path for name, path in machinery.items() for key in _keys(name)}
    for path, name in chosen:
        if name in machinery:
            yield Problem(
                path=path,
                message=f"got {name!r}, which is {machinery[name]}; it must be another one",
            )
        elif name in kept or name.startswith(tuple(lot_key(queue, "") for queue in machinery)):
            message = f"got {name!r}, a key that is kept for a queue; it must be another one"
            yield Problem(path=path, message=message)
        elif name.startswith(KEY_BEGINNINGS):
            beginnings = " or ".join(KEY_BEGINNINGS)
            yield Problem(path=path, message=f"got {name!r}, must not begin with {beginnings}")


def _keys(queue_name: str) -> Iterator[str]:
    """What is kept for a queue, the queue itself aside."""
    yield from set(msgspec.structs.astuple(queue_keys(queue_name))) - {queue_name}
    for prefix in (queue_name, private_prefix(queue_name)):
        yield from go_claim_keys(prefix)
