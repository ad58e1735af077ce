"""Checks that every name in Redis is used for one thing.

A result pushed onto a request, retry or dead-letter queue would be taken for a request; a queue or
a result on a key of the processor's own would break it, and so would a gate that writes there.

Unlike a message, an operator may choose any name in a queue's hash slot that is no such key: on a
cluster the results have to lie there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from async_processor.config.document import gates, mapping, queue_name, queues
from async_processor.config.wording import quoted
from async_processor.errors import Problem
from async_processor.redis_io.keys import lot_key, queue_keys, replicas_key
from async_processor.wire.names import KEY_BEGINNINGS, go_claim_keys, private_prefix, slot_tag

_Named = list[tuple[str, str]]
"""Paths, and the names that stand there."""

_KEYS_OF_REQUESTS: Final = (
    "request-active:", "request-cancel:", "request-payload:", "request-result:", "request-seq:",
)  # fmt: skip


def name_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Every name that is taken, or that is no name for its use."""
    requests = _requests(document)
    own = _retry_and_dead_letters(document)
    machinery = {name: path for path, name in [*own, *requests]}
    yield from _taken(own, {name: path for path, name in requests})
    yield from _taken(own[1:], {name: path for path, name in own[:1]})
    yield from _kept([*own, *requests], machinery)
    yield from _no_queues([*own, *requests])
    results = _results(document)
    yield from _taken(results, machinery)
    yield from _kept(results, machinery)
    yield from _no_results([each for each in results if each[1] not in machinery])
    yield from _gate_key_problems(document, machinery, results)


def _requests(document: Mapping[str, Any]) -> _Named:
    return [(f"{path}.queue_name", str(queue_name(queue))) for path, queue in queues(document)]


def _retry_and_dead_letters(document: Mapping[str, Any]) -> _Named:
    transport = mapping(document.get("transport"))
    return [
        (f"transport.{key}", str(transport.get(key, default)))
        for key, default in (
            ("retry_queue_name", "retry-sortedset"),
            ("dead_letter_queue_name", "dead-letter-list"),
        )
    ]


def _results(document: Mapping[str, Any]) -> _Named:
    transport = mapping(document.get("transport"))
    found = [("transport.result_queue_name", transport.get("result_queue_name", "result-list"))]
    found += [
        (f"{path}.result_queue_name", queue.get("result_queue_name"))
        for path, queue in queues(document)
    ]
    return [(path, str(name)) for path, name in found if name]


def _taken(named: _Named, owners: Mapping[str, str]) -> Iterator[Problem]:
    for path, name in named:
        if name in owners:
            message = f"got {quoted(name)}, which is {owners[name]}; it must be another one"
            yield Problem(path=path, message=message)


def _kept(named: _Named, machinery: Mapping[str, str]) -> Iterator[Problem]:
    keys = {key for name in machinery for key in _keys(name)}
    lots = tuple(lot_key(name, "") for name in machinery)
    for path, name in named:
        if name in keys or name.startswith(lots):
            message = f"got {quoted(name)}, a key that is kept for a queue; it must be another one"
            yield Problem(path=path, message=message)


def _keys(name: str) -> Iterator[str]:
    """What is kept for a queue, the queue itself aside."""
    yield from set(msgspec.structs.astuple(queue_keys(name))) - {name}
    yield replicas_key(name)
    for prefix in (name, private_prefix(name)):
        yield from go_claim_keys(prefix)


def _no_queues(named: _Named) -> Iterator[Problem]:
    for path, name in named:
        if name.startswith(_KEYS_OF_REQUESTS):
            beginnings = ", ".join(_KEYS_OF_REQUESTS)
            message = f"got {quoted(name)}, must not begin with any of {beginnings}"
            yield Problem(path=path, message=message)
        if "}" in name and slot_tag(name) == name:
            message = f"got {quoted(name)}, must have a hash tag, like {{llm}}, or no closing brace"
            yield Problem(path=path, message=message)


def _no_results(named: _Named) -> Iterator[Problem]:
    for path, name in named:
        if name.startswith(KEY_BEGINNINGS):
            beginnings = " or ".join(KEY_BEGINNINGS)
            yield Problem(
                path=path, message=f"got {quoted(name)}, must not begin with {beginnings}"
            )


def _gate_key_problems(
    document: Mapping[str, Any], machinery: Mapping[str, str], results: _Named
) -> Iterator[Problem]:
    keys = [each for path, gate in gates(document) for each in _gate_keys(path, gate)]
    owners = {**{name: path for path, name in results}, **machinery}
    yield from _taken(keys, owners)
    yield from _kept(keys, machinery)
    first: dict[str, str] = {}
    for path, name in keys:
        other = first.setdefault(name, path)
        if _setting(other) != _setting(path):
            yield from _taken([(path, name)], first)


def _setting(path: str) -> str:
    return path.rpartition(".")[2]


def _gate_keys(path: str, gate: Mapping[str, Any]) -> _Named:
    """What a gate reads and writes in the transport's Redis."""
    if gate.get("url") or gate.get("address"):
        return []
    if gate.get("type") == "redis":
        return [(f"{path}.budget_key", str(gate.get("budget_key", "dispatch-gate-budget")))]
    if gate.get("type") == "redis-leased-rate" and "control_key" in gate:
        control = str(gate["control_key"])
        state = str(gate.get("state_key") or f"{control}:state")
        return [(f"{path}.control_key", control), (f"{path}.state_key", state)]
    return []
