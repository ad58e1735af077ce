"""Rules across settings, and what is legal but looks like a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from async_processor.config.gate_warnings import gate_warnings
from async_processor.config.result_queues import result_queue_problems
from async_processor.config.settings import ServerSettings, Settings
from async_processor.errors import Problem
from async_processor.fields import read_duration
from async_processor.inference.settings import InferenceSettings

SHORTEST_LEASE: Final = 1.0
"""Seconds. A lease is extended every third of it; of a shorter one, one slow answer of the broker
would eat up what the extension leaves."""

_DEFAULT_TIMEOUTS: Final = (
    Settings.model_fields["drain_timeout"].default,
    InferenceSettings().request_timeout,
)
"""Of a drain and a request. The drain is shorter, for a stop must not take five minutes: whoever
leaves both alone is not warned of a decision that is ours."""


def faults(document: Mapping[str, Any]) -> list[Problem]:
    """Every broken rule across settings.

    Looks at the document rather than at `Settings`, so that these mistakes are found together
    with those inside a single setting; what has the wrong shape is not judged here.
    """
    return [
        *_duplicates(document),
        *_unknown_pools(document),
        *_missing_prometheus(document),
        *_missing_redis(document),
        *_short_lease(document),
        *_one_port(document),
        *_reserved_results(document),
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: Any, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    items = value if isinstance(value, list) else []
    return [(f"{path}[{index}]", _mapping(item)) for index, item in enumerate(items)]


def _queues(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return _entries(_mapping(document.get("transport")).get("queues"), "transport.queues")


def _pools(document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return _entries(document.get("worker_pools", [{}]), "worker_pools")


def _queue_name(queue: Mapping[str, Any]) -> Any:
    return queue.get("queue_name", "request-sortedset")


def _duplicates(document: Mapping[str, Any]) -> Iterator[Problem]:
    queues, pools = _queues(document), _pools(document)
    # An id that was left out is the queue's name, and a repeated name is told already.
    yield from _repeated((f"{path}.queue_name", _queue_name(queue)) for path, queue in queues)
    yield from _repeated((f"{path}.id", queue["id"]) for path, queue in queues if "id" in queue)
    yield from _repeated((f"{path}.id", pool.get("id", "default")) for path, pool in pools)


def _repeated(names: Iterable[tuple[str, Any]]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for path, name in names:
        if str(name) in first:
            message = f"got {name!r}, which {first[str(name)]} has already; it must be unique"
            yield Problem(path=path, message=message)
        first.setdefault(str(name), path)


def _unknown_pools(document: Mapping[str, Any]) -> Iterator[Problem]:
    known = [str(pool.get("id", "default")) for _, pool in _pools(document)]
    for path, queue in _queues(document) if known else ():
        pool = queue.get("worker_pool_id", "default")
        if isinstance(pool, str) and pool not in known:
            message = f"got {pool!r}, must be the id of one of worker_pools: {', '.join(known)}"
            yield Problem(path=f"{path}.worker_pool_id", message=message)


def _gates(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, owner in [*_queues(document), *_pools(document)]:
        yield from _with_inner(f"{path}.gate", _mapping(owner.get("gate")))


def _with_inner(path: str, gate: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A gate and the gates it is made of."""
    yield path, gate
    if "gate" in gate:
        yield from _with_inner(f"{path}.gate", _mapping(gate["gate"]))
    if gate.get("type") == "tier-priority-admission":
        parameters = _mapping(gate.get("saturation_gate_params"))
        told_apart = {**parameters, "type": gate.get("saturation_gate")}
        yield from _with_inner(f"{path}.saturation_gate_params", told_apart)
    inner = gate.get("gates")
    for index, each in enumerate(inner if isinstance(inner, list) else ()):
        yield from _with_inner(f"{path}.gates[{index}]", _mapping(each))


def _missing_prometheus(document: Mapping[str, Any]) -> Iterator[Problem]:
    if _mapping(document.get("prometheus")).get("url"):
        return
    for path, gate in _gates(document):
        if str(gate.get("type")).startswith("prometheus-") or (
            gate.get("type") == "vllm-pool" and gate.get("selector")
        ):
            message = f"got {gate['type']!r}, which needs prometheus.url"
            yield Problem(path=f"{path}.type", message=message)


def _missing_redis(document: Mapping[str, Any]) -> Iterator[Problem]:
    """The other transports have a Redis of their own, which is what gates then use."""
    if _mapping(document.get("transport")).get("type") != "memory":
        return
    for path, gate in _gates(document):
        if str(gate.get("type")).startswith("redis") and not (
            gate.get("url") or gate.get("address")
        ):
            message = f"is required: {gate['type']} needs a Redis, and the transport has none"
            yield Problem(path=f"{path}.url", message=message)


def _short_lease(document: Mapping[str, Any]) -> Iterator[Problem]:
    written = _mapping(document.get("transport")).get("lease_ttl", SHORTEST_LEASE)
    try:
        lease = read_duration(written)
    except ValueError:
        return
    if 0 < lease < SHORTEST_LEASE:
        message = (
            f"got {written!r}, must be {SHORTEST_LEASE:g}s or more: a lease must be longer than "
            "the time its extension takes"
        )
        yield Problem(path="transport.lease_ttl", message=message)


def _one_port(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Port 0 takes a free one each."""
    server = _mapping(document.get("server"))
    fields = ServerSettings.model_fields
    health = server.get("health_port", fields["health_port"].default)
    metrics = server.get("metrics_port", fields["metrics_port"].default)
    if str(health) == str(metrics) and str(health) != "0":
        yield _taken("server.metrics_port", metrics, "server.health_port")


def _reserved_results(document: Mapping[str, Any]) -> Iterator[Problem]:
    """A result pushed onto a request, retry or dead-letter queue would be taken for a request."""
    transport = _mapping(document.get("transport"))
    requests = {str(_queue_name(queue)): f"{path}.queue_name" for path, queue in _queues(document)}
    own = {
        str(transport.get("retry_queue_name", "retry-sortedset")): "transport.retry_queue_name",
        str(transport.get("dead_letter_queue_name", "dead-letter-list")): (
            "transport.dead_letter_queue_name"
        ),
    }
    for name, path in own.items():
        if name in requests:
            yield _taken(path, name, requests[name])
    results = [("transport.result_queue_name", transport.get("result_queue_name", "result-list"))]
    results += [
        (f"{path}.result_queue_name", queue.get("result_queue_name"))
        for path, queue in _queues(document)
    ]
    chosen = [(path, str(name)) for path, name in results if name]
    yield from result_queue_problems(chosen, {**own, **requests})


def _taken(path: str, name: Any, other: str) -> Problem:
    return Problem(path=path, message=f"got {name!r}, which is {other}; it must be another one")


def warnings(settings: Settings) -> list[Problem]:
    """What is legal and probably not meant."""
    return [
        *_short_drain(settings),
        *_capped_backoff(settings),
        *_idle_pools(settings),
        *gate_warnings(settings),
    ]


def _short_drain(settings: Settings) -> Iterator[Problem]:
    chosen = (settings.drain_timeout, settings.inference.request_timeout)
    if chosen[0] < chosen[1] and chosen != _DEFAULT_TIMEOUTS:
        message = (
            f"{settings.drain_timeout:g}s is shorter than inference.request_timeout "
            f"({settings.inference.request_timeout:g}s): a stop may cut calls off, which then run "
            "again elsewhere"
        )
        yield Problem(path="drain_timeout", message=message)


def _capped_backoff(settings: Settings) -> Iterator[Problem]:
    retry = settings.retry
    if retry.base_delay > retry.max_delay:
        message = (
            f"{retry.base_delay:g}s is longer than retry.max_delay ({retry.max_delay:g}s), which "
            "caps every wait: the waits do not grow"
        )
        yield Problem(path="retry.base_delay", message=message)


def _idle_pools(settings: Settings) -> Iterator[Problem]:
    used = Counter(queue.worker_pool_id for queue in settings.queues)
    for index, pool in enumerate(settings.worker_pools):
        if not used[pool.id]:
            message = f"no queue names the pool {pool.id!r}, its workers stay idle"
            yield Problem(path=f"worker_pools[{index}].id", message=message)
