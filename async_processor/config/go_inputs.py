"""The Go implementation's flags and documents, turned into one document shaped like our YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from async_processor.config import go_documents
from async_processor.config.go_documents import Notes, read_json
from async_processor.config.go_flags import DEPRECATED, LOGGING, FlagValue
from async_processor.config.yaml_file import read_file
from async_processor.errors import ConfigurationError, Problem

GO_DEFAULT_TRANSPORT: Final = "redis-pubsub"
GO_DEFAULT_CONCURRENCY: Final = 64
UNTIL_THE_DEADLINE: Final = "8760h"
"""A year: what `--gate-wait-timeout=0` means in Go, for no request waits that long."""

_NEW_TRANSPORT: Final = ("transport", "transport-config", "transport-config-file")
_PLACES: Final = {
    "request-timeout": ("inference", "request_timeout"),
    "tls-ca-cert": ("inference", "tls", "ca_file"),
    "tls-cert": ("inference", "tls", "cert_file"),
    "tls-key": ("inference", "tls", "key_file"),
    "tls-insecure-skip-verify": ("inference", "tls", "insecure"),
    "drain-timeout": ("drain_timeout",),
    "gate-wait-timeout": ("gate_wait_timeout",),
    "health-port": ("server", "health_port"),
    "metrics-port": ("server", "metrics_port"),
    "prometheus-url": ("prometheus", "url"),
    "prometheus-cache-ttl": ("prometheus", "cache_ttl"),
    "metrics-backlog-poll-interval": ("transport", "backlog_poll_interval"),
    "transform-config-file": ("transforms",),
}
"""Flags that stand for one setting each."""
_SINGLE_QUEUE: Final = {
    "redis.ss.request-queue-name": "queue_name",
    "redis.ss.igw-base-url": "igw_base_url",
    "redis.ss.request-path-url": "request_path_url",
    "redis.ss.inference-objective": "inference_objective",
    "redis.ss.gate-type": "gate_type",
}
_ZERO: Final = ("0", "0s")

Flags = Mapping[str, FlagValue]


def document_from(flags: Flags, environ: Mapping[str, str]) -> tuple[dict[str, Any], Notes]:
    """A document for `load.validated`, and notes about flags that have no effect or a new name.

    Raises ConfigurationError for documents that cannot be read.
    """
    notes = _notes(flags)
    document: dict[str, Any] = {"transport": _transport(flags, environ, notes)}
    document["worker_pools"] = _pools(flags)
    policy = _merge_policy(flags)
    if policy:
        document["merge_policy"] = policy
    _place_settings(document, _meant(flags, notes))
    return document, notes


def _place_settings(document: dict[str, Any], flags: Flags) -> None:
    for flag, (*sections, key) in _PLACES.items():
        if flags.get(flag, "") != "":
            section = document
            for name in sections:
                section = section.setdefault(name, {})
            section[key] = flags[flag]


def _meant(flags: Flags, notes: Notes) -> Flags:
    """Flags whose zero has a meaning of its own, said in our words."""
    meant = dict(flags)
    if meant.get("gate-wait-timeout") in _ZERO:
        meant["gate-wait-timeout"] = UNTIL_THE_DEADLINE
    if meant.get("prometheus-cache-ttl") in _ZERO:
        meant["prometheus-cache-ttl"] = "1s"
        notes.append("--prometheus-cache-ttl=0 reads Prometheus once a second")
    if not meant.get("prometheus-url"):
        meant.pop("prometheus-cache-ttl", None)
    return meant


def _notes(flags: Flags) -> Notes:
    notes = []
    old = [name for name in flags if name in DEPRECATED]
    ignored = [name for name in old if _has_new_transport(flags) and _is_transport(name)]
    if ignored:
        notes.append(f"{_listed(ignored)}: ignored, for --transport or --transport-config is given")
    if set(old) - set(ignored):
        notes.append(
            f"{_listed(name for name in old if name not in ignored)}: deprecated, still obeyed; "
            "`async-processor config migrate` prints the YAML for it"
        )
    if flags.get("metrics-endpoint-auth"):
        notes.append("--metrics-endpoint-auth is ignored: server.bearer_token protects /metrics")
    notes += [
        f"--{name} is ignored: changed queues need a restart in this version"
        for name in flags
        if name.endswith("config-watch-interval") and flags[name] not in _ZERO
    ]
    if flags.get("redis-tracing"):
        notes.append("--redis-tracing is ignored: Redis commands are not traced")
    if any(name in LOGGING and name != "v" for name in flags):
        notes.append("--zap-* flags are ignored")
    return notes


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def _has_new_transport(flags: Flags) -> bool:
    return any(name in flags for name in _NEW_TRANSPORT)


def _is_transport(deprecated: str) -> bool:
    return not deprecated.startswith("request-merge-policy")


def _transport(flags: Flags, environ: Mapping[str, str], notes: Notes) -> dict[str, Any]:
    if _has_new_transport(flags):
        return _new_transport(flags, environ, notes)
    type_name = str(flags.get("message-queue-impl", GO_DEFAULT_TRANSPORT))
    if type_name == "gcp-pubsub-gated":
        type_name = "gcp-pubsub"
    if type_name != "redis-sortedset":
        return {"type": type_name}
    return go_documents.transport(_sorted_set(flags), environ, notes)


def _new_transport(flags: Flags, environ: Mapping[str, str], notes: Notes) -> dict[str, Any]:
    type_name = str(flags.get("transport", GO_DEFAULT_TRANSPORT))
    if type_name != "redis-sortedset":
        return {"type": type_name}
    inline, path = flags.get("transport-config"), flags.get("transport-config-file")
    if bool(inline) == bool(path):
        raise ConfigurationError(
            [
                Problem(
                    path="--transport-config",
                    message="give either --transport-config or --transport-config-file",
                )
            ]
        )
    document = _json_text("transport-config", str(inline)) if inline else _json_file(str(path))
    return go_documents.transport(document, environ, notes)


def _sorted_set(flags: Flags) -> dict[str, Any]:
    """The document that the deprecated flags stand for."""
    document: dict[str, Any] = {
        "url": flags.get("redis.url") or _url_of(flags.get("redis.ss.addr")),
        "result_queue_name": flags.get("redis.ss.result-queue-name"),
        "poll_interval_ms": flags.get("redis.ss.poll-interval-ms"),
        "batch_size": flags.get("redis.ss.batch-size"),
    }
    if flags.get("redis.ss.queues-config"):
        document["queues"] = _json_text(
            "redis.ss.queues-config", str(flags["redis.ss.queues-config"])
        )
    elif flags.get("redis.ss.queues-config-file"):
        document["queues"] = _json_file(str(flags["redis.ss.queues-config-file"]))
    else:
        document["queues"] = [_single_queue(flags)]
    return document


def _url_of(address: FlagValue | None) -> str:
    return f"redis://{address}/0" if address else ""


def _single_queue(flags: Flags) -> dict[str, Any]:
    queue: dict[str, Any] = {"igw_base_url": ""}
    queue |= {key: flags[flag] for flag, key in _SINGLE_QUEUE.items() if flag in flags}
    if flags.get("redis.ss.gate-params"):
        queue["gate_params"] = _json_text(
            "redis.ss.gate-params", str(flags["redis.ss.gate-params"])
        )
    return queue


def _pools(flags: Flags) -> Any:
    concurrency = int(flags.get("concurrency", GO_DEFAULT_CONCURRENCY))
    if flags.get("pool-config-file"):
        return go_documents.pools(_json_file(str(flags["pool-config-file"])), concurrency)
    return [{"id": "default", "workers": concurrency}]


def _merge_policy(flags: Flags) -> dict[str, Any]:
    path = flags.get("request-merge-policy-config-file") or flags.get("request-merge-policy-config")
    if path:
        return go_documents.merge_policy(_json_file(str(path)))
    if flags.get("request-merge-policy"):
        return {"type": flags["request-merge-policy"]}
    return {}


def _json_text(flag: str, text: str) -> Any:
    return read_json(text, f"--{flag}")


def _json_file(path: str) -> Any:
    return read_json(read_file(Path(path)), path)
