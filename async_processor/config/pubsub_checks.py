"""Rules of a configuration for Pub/Sub: each name for one thing, and leases that Pub/Sub grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from async_processor.config.document import gates, mapping, queue_name, queues
from async_processor.errors import Problem
from async_processor.fields import read_duration
from async_processor.wire import pubsub_names

SHORTEST_LEASE: Final = 10.0
LONGEST_LEASE: Final = 600.0
"""Seconds, of an ack deadline."""


def topic_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """What cannot be, with its path."""
    yield from _same_subscription(document)
    yield from _same_topic(document)
    yield from _lease(document)
    yield from _shared_gates(document)


def _project(document: Mapping[str, Any]) -> str:
    return str(mapping(document.get("transport")).get("project_id"))


def _same_subscription(document: Mapping[str, Any]) -> Iterator[Problem]:
    """An id and a full name may mean the same."""
    first: dict[str, tuple[str, str]] = {}
    for path, queue in queues(document):
        written = str(queue_name(queue))
        full = pubsub_names.subscription(written, _project(document))
        place, other = first.setdefault(full, (f"{path}.subscriber_id", written))
        if other != written:
            message = f"got {written!r}, which is {place}; it must be another one"
            yield Problem(path=f"{path}.subscriber_id", message=message)


def _same_topic(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Results must not go to the dead letters, nor to where requests come from."""
    transport = mapping(document.get("transport"))
    named = [("transport.dead_letter_topic_id", transport.get("dead_letter_topic_id"))]
    named += [(f"{path}.topic_id", queue.get("topic_id")) for path, queue in queues(document)]
    kept = {pubsub_names.topic(str(name), _project(document)): path for path, name in named if name}
    results = [("transport.result_topic_id", transport.get("result_topic_id"))]
    results += [
        (f"{path}.result_queue_name", queue.get("result_queue_name"))
        for path, queue in queues(document)
    ]
    for path, name in results:
        other = name and kept.get(pubsub_names.topic(str(name), _project(document)))
        if other:
            message = f"got {name!r}, which is {other}; it must be another one"
            yield Problem(path=path, message=message)


def _lease(document: Mapping[str, Any]) -> Iterator[Problem]:
    written = mapping(document.get("transport")).get("lease_ttl", LONGEST_LEASE)
    try:
        seconds = read_duration(written)
    except ValueError:
        return
    if not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
        message = f"got {written!r}, must be {SHORTEST_LEASE:g}s to {LONGEST_LEASE:g}s on Pub/Sub"
        yield Problem(path="transport.lease_ttl", message=message)


def _shared_gates(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Replicas find each other in the transport's Redis."""
    for path, gate in gates(document):
        if gate.get("shared") in (True, "true"):
            message = "got true, which needs a transport over Redis, where replicas find each other"
            yield Problem(path=f"{path}.shared", message=message)
