"""The Go implementation's flags and documents, turned into one document shaped like our YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_processor.config import go_documents
from async_processor.config.go_deprecated import pubsub, sorted_set
from async_processor.config.go_documents import Notes, read_json, read_json_file
from async_processor.config.go_flags import Flags
from async_processor.config.go_notes import ZERO, has_new_transport, notes_on
from async_processor.errors import ConfigurationError, Problem

GO_DEFAULT_TRANSPORT: Final = "redis-pubsub"
GO_DEFAULT_CONCURRENCY: Final = 64
UNTIL_THE_DEADLINE: Final = "8760h"
"""A year: what `--gate-wait-timeout=0` means in Go, for no request waits that long."""

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
}
"""Flags that stand for one setting each."""


def document_from(flags: Flags, environ: Mapping[str, str]) -> tuple[dict[str, Any], Notes]:
    """A document for `load.validated`, and notes about flags that have no effect.

    Raises ConfigurationError for documents that cannot be read.
    """
    notes = notes_on(flags)
    document: dict[str, Any] = {"transport": _transport(flags, environ, notes)}
    document["worker_pools"] = _pools(flags)
    policy = _merge_policy(flags)
    if policy:
        document["merge_policy"] = policy
    if flags.get("transform-config-file"):
        path = str(flags["transform-config-file"])
        document["transforms"] = go_documents.transforms(read_json_file(path))
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
    if meant.get("gate-wait-timeout") in ZERO:
        meant["gate-wait-timeout"] = UNTIL_THE_DEADLINE
    if meant.get("prometheus-cache-ttl") in ZERO:
        meant["prometheus-cache-ttl"] = "1s"
        notes.append("--prometheus-cache-ttl=0 reads Prometheus once a second")
    if not meant.get("prometheus-url"):
        meant.pop("prometheus-cache-ttl", None)
    return meant


def _transport(flags: Flags, environ: Mapping[str, str], notes: Notes) -> dict[str, Any]:
    if has_new_transport(flags):
        return _new_transport(flags, environ, notes)
    type_name = _chosen(flags, "message-queue-impl")
    if type_name in ("gcp-pubsub", "gcp-pubsub-gated"):
        return go_documents.pubsub(pubsub(flags, type_name, notes), notes)
    if type_name != "redis-sortedset":
        return {"type": type_name}
    return go_documents.transport(sorted_set(flags), environ, notes)


def _chosen(flags: Flags, flag: str) -> str:
    """The transport that a flag names, which nobody leaves to Go's default any more."""
    if not flags.get(flag):
        message = (
            f"is required: without it the Go implementation takes {GO_DEFAULT_TRANSPORT}, which "
            f"loses messages and is not supported; add --{flag}=redis-sortedset"
        )
        raise ConfigurationError([Problem(path=f"--{flag}", message=message)])
    return str(flags[flag])


def _new_transport(flags: Flags, environ: Mapping[str, str], notes: Notes) -> dict[str, Any]:
    type_name = _chosen(flags, "transport")
    if type_name not in ("redis-sortedset", "gcp-pubsub"):
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
    document = read_json(str(inline), "--transport-config") if inline else read_json_file(str(path))
    if type_name == "gcp-pubsub":
        return go_documents.pubsub(document, notes)
    return go_documents.transport(document, environ, notes)


def _pools(flags: Flags) -> Any:
    concurrency = int(flags.get("concurrency", GO_DEFAULT_CONCURRENCY))
    if flags.get("pool-config-file"):
        return go_documents.pools(read_json_file(str(flags["pool-config-file"])), concurrency)
    return [{"id": "default", "workers": concurrency}]


def _merge_policy(flags: Flags) -> dict[str, Any]:
    path = flags.get("request-merge-policy-config-file") or flags.get("request-merge-policy-config")
    if path:
        return go_documents.merge_policy(read_json_file(str(path)))
    if flags.get("request-merge-policy"):
        return {"type": flags["request-merge-policy"]}
    return {}
