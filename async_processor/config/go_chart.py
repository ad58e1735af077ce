"""The values of the Go implementation's chart, in both of its generations: what they mean for the
daemon's configuration.

The older one (`async-processor`) describes the broker under `ap.redis` and `ap.gcpPubSub`; the
newer one (`llm-d-async`) under `ap.transport` and `ap.transportConfig`, and still reads the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_processor.config import go_documents
from async_processor.config.go_documents import Notes
from async_processor.errors import ConfigurationError, Problem

TLS_FOLDER: Final = "/etc/tls"
"""Where that chart mounts the certificates."""

_PLACES: Final = {
    ("prometheusURL",): ("prometheus", "url"),
    ("prometheusCacheTTL",): ("prometheus", "cache_ttl"),
    ("drainTimeout",): ("drain_timeout",),
    ("health", "port"): ("server", "health_port"),
    ("metrics", "port"): ("server", "metrics_port"),
    ("tls", "insecureSkipVerify"): ("inference", "tls", "insecure"),
}
_TLS_FILES: Final = {"caCertKey": "ca_file", "certKey": "cert_file", "keyKey": "key_file"}
_QUEUE: Final = {
    "requestQueueName": "queue_name",
    "requestPathURL": "request_path_url",
    "gateType": "gate_type",
    "gateParams": "gate_params",
}
_TOPIC: Final = {"requestSubscriberId": "subscriber_id", "requestPathURL": "request_path_url"}
_SORTED_SET: Final = {
    "resultQueueName": "result_queue_name",
    "pollIntervalMs": "poll_interval_ms",
    "batchSize": "batch_size",
}
_PUBSUB: Final = {"projectId": "project_id", "resultTopicId": "result_topic_id"}
_DEFAULT_WORKERS: Final = 64


def at(values: Any, *keys: str) -> Any:
    """What stands there, or None; an empty text counts as nothing, as it does in that chart."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return None if values == "" else values


def renamed(values: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """What is set of `names`, under our names."""
    found = {ours: at(values, theirs) for theirs, ours in names.items()}
    return {key: value for key, value in found.items() if value is not None}


def configuration(ap: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """A document for `load.validated` of what stands under `ap`.

    Raises ConfigurationError where no transport is chosen, or one that loses messages.
    """
    document: dict[str, Any] = {
        "transport": _transport(ap, notes),
        "worker_pools": _pools(ap, notes),
    }
    if at(ap, "requestMergePolicyConfig"):
        document["merge_policy"] = go_documents.merge_policy(ap["requestMergePolicyConfig"])
    if at(ap, "transformConfig"):
        document["transforms"] = go_documents.transforms(ap["transformConfig"])
    for theirs, ours in _PLACES.items():
        _place(document, ours, at(ap, *theirs))
    for key, name in _TLS_FILES.items():
        file = at(ap, "tls", key)
        _place(document, ("inference", "tls", name), file and f"{TLS_FOLDER}/{file}")
    if "url" not in document.get("prometheus", {}):
        document.pop("prometheus", None)
    return document


def _place(document: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    if value is None or value is False:
        return
    *sections, key = place
    for section in sections:
        document = document.setdefault(section, {})
    document[key] = value


def _pools(ap: Mapping[str, Any], notes: Notes) -> Any:
    workers = at(ap, "concurrency")
    if at(ap, "workerPools"):
        return go_documents.pools(ap["workerPools"], workers or _DEFAULT_WORKERS)
    if workers is None:
        notes.append("ap.concurrency is not set: 64 workers; the chart async-processor had 8")
    return [{"id": "default", "workers": workers or _DEFAULT_WORKERS}]


def _transport(ap: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    if at(ap, "transport"):
        document = at(ap, "transportConfig")
        if isinstance(document, Mapping):
            document = {key: value for key, value in document.items() if key != "urlSecret"}
        return _of_type(str(ap["transport"]), document, notes)
    if at(ap, "redis", "enabled"):
        return _of_type(_implementation(ap), _sorted_set(ap), notes)
    if at(ap, "gcpPubSub", "enabled"):
        return _of_type("gcp-pubsub", _pubsub(ap), notes)
    raise _wrong("ap.transport", "is not set, and neither is ap.redis.enabled: there is no broker")


def _implementation(ap: Mapping[str, Any]) -> str:
    chosen = at(ap, "messageQueueImpl")
    if chosen is None:
        raise _wrong(
            "ap.messageQueueImpl",
            "is not set, so the Go implementation takes redis-pubsub, which loses messages and is "
            "not supported; set it to redis-sortedset",
        )
    return str(chosen)


def _of_type(type_name: str, document: Any, notes: Notes) -> dict[str, Any]:
    if type_name == "redis-sortedset":
        return go_documents.transport(document, {}, notes)
    if type_name == "gcp-pubsub":
        return go_documents.pubsub(document, notes)
    return {"type": type_name}


def _sorted_set(ap: Mapping[str, Any]) -> dict[str, Any]:
    """The document that the older values stand for."""
    redis = ap["redis"]
    single = {"igw_base_url": at(ap, "igwBaseURL") or "", **renamed(redis, _QUEUE)}
    queues = at(redis, "queuesConfig") or [single]
    return {**renamed(redis, _SORTED_SET), "queues": queues}


def _pubsub(ap: Mapping[str, Any]) -> dict[str, Any]:
    """The document that the older values stand for."""
    settings = ap["gcpPubSub"]
    single = {"igw_base_url": at(ap, "igwBaseURL") or "", **renamed(settings, _TOPIC)}
    topics = at(settings, "topicsConfig") or [single]
    return {**renamed(settings, _PUBSUB), "topics": topics}


def _wrong(path: str, message: str) -> ConfigurationError:
    return ConfigurationError([Problem(path=path, message=message)])
