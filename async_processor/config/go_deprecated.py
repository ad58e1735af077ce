"""The deprecated flags of the sorted-set transport, turned into the document that replaced them."""

from __future__ import annotations

from typing import Any, Final

from async_processor.config.go_documents import read_json, read_json_file
from async_processor.config.go_flags import Flags, FlagValue

_SINGLE_QUEUE: Final = {
    "redis.ss.request-queue-name": "queue_name",
    "redis.ss.igw-base-url": "igw_base_url",
    "redis.ss.request-path-url": "request_path_url",
    "redis.ss.inference-objective": "inference_objective",
    "redis.ss.gate-type": "gate_type",
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
