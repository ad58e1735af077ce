"""Walks a document that is shaped like the YAML file, whatever stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Entry = tuple[str, Mapping[str, Any]]
"""A section with its path."""

DEFAULT_QUEUE: Final = "request-sortedset"


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, or an empty mapping in the place of what has another shape."""
    return value if isinstance(value, Mapping) else {}


def entries(value: Any, path: str) -> list[Entry]:
    """What stands in a list."""
    items = value if isinstance(value, list) else []
    return [(f"{path}[{index}]", mapping(item)) for index, item in enumerate(items)]


def on_pubsub(document: Mapping[str, Any]) -> bool:
    """Whether the transport is Pub/Sub, whose queues are subscriptions to topics."""
    return bool(mapping(document.get("transport")).get("type") == "gcp-pubsub")


def queues(document: Mapping[str, Any]) -> list[Entry]:
    """The queues of the transport."""
    key = "topics" if on_pubsub(document) else "queues"
    return entries(mapping(document.get("transport")).get(key), f"transport.{key}")


def pools(document: Mapping[str, Any]) -> list[Entry]:
    """The worker pools; one where none is given."""
    return entries(document.get("worker_pools", [{}]), "worker_pools")


def queue_name(queue: Mapping[str, Any]) -> Any:
    """What a queue is called."""
    return queue.get("subscriber_id", queue.get("queue_name", DEFAULT_QUEUE))


def name_path(path: str, queue: Mapping[str, Any]) -> str:
    """Where a queue's name stands."""
    return f"{path}.{'subscriber_id' if 'subscriber_id' in queue else 'queue_name'}"


def gates(document: Mapping[str, Any]) -> Iterator[Entry]:
    """Every gate, also those that others are made of."""
    for path, owner in [*queues(document), *pools(document)]:
        yield from gates_of(path, owner)


def gates_of(path: str, owner: Mapping[str, Any]) -> Iterator[Entry]:
    """The gate of a queue or pool, and those that it is made of."""
    return _with_inner(f"{path}.gate", mapping(owner.get("gate")))


def _with_inner(path: str, gate: Mapping[str, Any]) -> Iterator[Entry]:
    yield path, gate
    if "gate" in gate:
        yield from _with_inner(f"{path}.gate", mapping(gate["gate"]))
    if gate.get("type") == "tier-priority-admission":
        parameters = mapping(gate.get("saturation_gate_params"))
        told_apart = {**parameters, "type": gate.get("saturation_gate")}
        yield from _with_inner(f"{path}.saturation_gate_params", told_apart)
    for inner_path, inner in entries(gate.get("gates"), f"{path}.gates"):
        yield from _with_inner(inner_path, inner)
