"""Rules across settings.

They look at the document rather than at `Settings`, so that these mistakes are found together with
those inside a single setting; what has the wrong shape is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from async_processor.config.document import (
    gates,
    mapping,
    name_path,
    on_pubsub,
    pools,
    queue_name,
    queues,
)
from async_processor.config.header_checks import header_problems
from async_processor.config.pubsub_checks import topic_problems
from async_processor.config.quota_checks import repeated_slots
from async_processor.config.redis_names import name_problems
from async_processor.config.settings import ServerSettings
from async_processor.config.wording import listed, quoted
from async_processor.errors import Problem
from async_processor.fields import read_duration

SHORTEST_LEASE: Final = 1.0
"""Seconds. A lease is extended every third of it; of a shorter one, one slow answer of the broker
would eat up what the extension leaves. So it is with a slot."""


def faults(document: Mapping[str, Any]) -> list[Problem]:
    """Every broken rule across settings."""
    return [
        *_duplicates(document),
        *_unknown_pools(document),
        *_missing_prometheus(document),
        *_missing_redis(document),
        *_divided_memory(document),
        *_short_lease(document),
        *_short_slots(document),
        *repeated_slots(document),
        *_one_port(document),
        *(topic_problems(document) if on_pubsub(document) else name_problems(document)),
        *header_problems(document),
    ]


def _duplicates(document: Mapping[str, Any]) -> Iterator[Problem]:
    named = [(name_path(path, queue), queue_name(queue)) for path, queue in queues(document)]
    yield from _repeated(named)
    yield from _repeated(_queue_ids(document))
    yield from _repeated(
        (f"{path}.id", pool.get("id", "default")) for path, pool in pools(document)
    )


def _queue_ids(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """An id that was left out is the queue's name; of a repeated name only the first counts, for
    the other is told already."""
    names: set[str] = set()
    for path, queue in queues(document):
        if "id" in queue:
            yield f"{path}.id", queue["id"]
        elif str(queue_name(queue)) not in names:
            yield name_path(path, queue), queue_name(queue)
            names.add(str(queue_name(queue)))


def _repeated(names: Iterable[tuple[str, Any]]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for path, name in names:
        if str(name) in first:
            message = f"got {quoted(name)}, which {first[str(name)]} has already; it must be unique"
            yield Problem(path=path, message=message)
        first.setdefault(str(name), path)


def _unknown_pools(document: Mapping[str, Any]) -> Iterator[Problem]:
    known = list(dict.fromkeys(str(pool.get("id", "default")) for _, pool in pools(document)))
    for path, queue in queues(document) if known else ():
        pool = queue.get("worker_pool_id", "default")
        if isinstance(pool, str) and pool not in known:
            message = f"got {quoted(pool)}, must be the id of one of worker_pools: {listed(known)}"
            yield Problem(path=f"{path}.worker_pool_id", message=message)


def _missing_prometheus(document: Mapping[str, Any]) -> Iterator[Problem]:
    if mapping(document.get("prometheus")).get("url"):
        return
    for path, gate in gates(document):
        if str(gate.get("type")).startswith("prometheus-") or (
            gate.get("type") == "vllm-pool" and gate.get("selector")
        ):
            message = f"got {quoted(gate['type'])}, which needs prometheus.url"
            yield Problem(path=f"{path}.type", message=message)


def _missing_redis(document: Mapping[str, Any]) -> Iterator[Problem]:
    """A transport over Redis has one, which is what gates then use."""
    if mapping(document.get("transport")).get("type") not in ("memory", "gcp-pubsub"):
        return
    for path, gate in gates(document):
        if str(gate.get("type")).startswith("redis") and not (
            gate.get("url") or gate.get("address")
        ):
            message = f"is required: {gate['type']} needs a Redis, and the transport has none"
            yield Problem(path=f"{path}.url", message=message)


def _divided_memory(document: Mapping[str, Any]) -> Iterator[Problem]:
    processes = document.get("processes", 1)
    on_memory = mapping(document.get("transport")).get("type") == "memory"
    if on_memory and str(processes).strip() != "1":
        message = (
            f"got {quoted(processes)}, must be 1 with transport.type memory: its queues are in the "
            "memory of one process"
        )
        yield Problem(path="processes", message=message)


def _short_lease(document: Mapping[str, Any]) -> Iterator[Problem]:
    written = mapping(document.get("transport")).get("lease_ttl", SHORTEST_LEASE)
    if _too_short(written):
        message = (
            f"got {quoted(written)}, must be {SHORTEST_LEASE:g}s or more: a lease must be longer "
            "than the time its extension takes"
        )
        yield Problem(path="transport.lease_ttl", message=message)


def _short_slots(document: Mapping[str, Any]) -> Iterator[Problem]:
    for path, gate in gates(document):
        written = gate.get("window", SHORTEST_LEASE)
        if gate.get("mode") == "concurrency" and _too_short(written):
            message = (
                f"got {quoted(written)}, must be {SHORTEST_LEASE:g}s or more with mode: "
                "concurrency: a slot must live longer than its renewal takes"
            )
            yield Problem(path=f"{path}.window", message=message)


def _too_short(written: Any) -> bool:
    try:
        return 0 < read_duration(written) < SHORTEST_LEASE
    except ValueError:
        return False


def _one_port(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Port 0 takes a free one each."""
    server = mapping(document.get("server"))
    fields = ServerSettings.model_fields
    health = server.get("health_port", fields["health_port"].default)
    metrics = server.get("metrics_port", fields["metrics_port"].default)
    if str(health) == str(metrics) and str(health) != "0":
        message = f"got {quoted(metrics)}, which is server.health_port; it must be another one"
        yield Problem(path="server.metrics_port", message=message)
