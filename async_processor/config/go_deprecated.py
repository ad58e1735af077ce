"""The deprecated flags of each transport, turned into the document that replaced them."""

from __future__ import annotations

from typing import Any, Final

from async_processor.config.go_documents import Notes, read_json, read_json_file
from async_processor.config.go_flags import Flags, FlagValue

_SINGLE_QUEUE: Final = {
    "redis.ss.request-queue-name": "queue_name",
    "redis.ss.igw-base-url": "igw_base_url",
    "redis.ss.request-path-url": "request_path_url",
    "redis.ss.inference-objective": "inference_objective",
    "redis.ss.gate-type": "gate_type",
}


_SINGLE_TOPIC: Final = {
    "pubsub.request-subscriber-id": "subscriber_id",
    "pubsub.igw-base-url": "igw_base_url",
    "pubsub.request-path-url": "request_path_url",
    "pubsub.inference-objective": "inference_objective",
}


def sorted_set(flags: Flags) -> dict[str, Any]:
    """The document that the deprecated flags stand for."""
    document: dict[str, Any] = {
        "url": flags.get("redis.url") or _url_of(flags.get("redis.ss.addr")),
        "result_queue_name": flags.get("redis.ss.result-queue-name"),
        "poll_interval_ms": flags.get("redis.ss.poll-interval-ms"),
        "batch_size": flags.get("redis.ss.batch-size"),
    }
    if flags.get("redis.ss.queues-config"):
        document["queues"] = _text(flags, "redis.ss.queues-config")
    elif flags.get("redis.ss.queues-config-file"):
        document["queues"] = read_json_file(str(flags["redis.ss.queues-config-file"]))
    else:
        document["queues"] = [_single_queue(flags)]
    return document


def pubsub(flags: Flags, implementation: str, notes: Notes) -> dict[str, Any]:
    """The document that the deprecated flags of Pub/Sub stand for.

    Under its plain name that implementation took no notice of gates.
    """
    document: dict[str, Any] = {
        "project_id": flags.get("pubsub.project-id"),
        "result_topic_id": flags.get("pubsub.result-topic-id"),
        "batch_size": flags.get("pubsub.batch-size"),
    }
    path = flags.get("pubsub.topics-config-file")
    document["topics"] = read_json_file(str(path)) if path else [_single_topic(flags)]
    if implementation == "gcp-pubsub" and _drop_gates(document["topics"]):
        notes.append(
            "gates of topics are ignored: --message-queue-impl=gcp-pubsub has none, "
            "gcp-pubsub-gated and --transport=gcp-pubsub have"
        )
    return document


def _single_topic(flags: Flags) -> dict[str, Any]:
    topic: dict[str, Any] = {"subscriber_id": "", "igw_base_url": ""}
    return topic | {key: flags[flag] for flag, key in _SINGLE_TOPIC.items() if flag in flags}


def _drop_gates(topics: Any) -> bool:
    """Take the gates out; returns whether there was one."""
    entries = [entry for entry in topics if isinstance(entry, dict)]
    kinds = [entry.pop("gate_type", None) for entry in entries]
    for entry in entries:
        entry.pop("gate_params", None)
    return any(kinds)


def _url_of(address: FlagValue | None) -> str:
    return f"redis://{address}/0" if address else ""


def _single_queue(flags: Flags) -> dict[str, Any]:
    queue: dict[str, Any] = {"igw_base_url": ""}
    queue |= {key: flags[flag] for flag, key in _SINGLE_QUEUE.items() if flag in flags}
    if flags.get("redis.ss.gate-params"):
        queue["gate_params"] = _text(flags, "redis.ss.gate-params")
    return queue


def _text(flags: Flags, name: str) -> Any:
    return read_json(str(flags[name]), f"--{name}")
