"""The Go implementation's JSON documents, turned into the shape of our YAML file.

Nothing is judged here: a key that we do not know stays where it is and is refused with all other
mistakes. In Go an empty text and a zero mean "not set", so they are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from async_processor.config.yaml_file import read_file
from async_processor.errors import ConfigurationError, Problem

_WITHOUT_EFFECT: Final = {
    "poll_interval_ms": "work is noticed when it comes, nothing is polled",
    "batch_size": "as much is claimed as there are free workers",
}
_JSON_PARAMETERS: Final = frozenset(
    {"gate", "gates", "labels", "limits", "pods_labels", "saturation_gate_params", "urls"}
)
"""Gate parameters that may be JSON text."""
_REQUIRED: Final = frozenset({"queue_name", "subscriber_id", "igw_base_url"})
"""Keys whose empty text is a mistake rather than a default."""

Notes = list[str]


def read_json(text: str, name: str) -> Any:
    """Parse a document; `name` is the flag or file it comes from.

    Raises ConfigurationError with line and column.
    """

    def refuse(constant: str) -> NoReturn:
        raise ConfigurationError([Problem(path=name, message=f"{constant} is not JSON")])

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"{name}:{error.lineno}:{error.colno}"
        raise ConfigurationError(
            [Problem(path=place, message=f"is not JSON: {error.msg}")]
        ) from None
    except (ValueError, RecursionError):
        message = "is nested too deeply, or has a number that is too long"
        raise ConfigurationError([Problem(path=name, message=message)]) from None


def read_json_file(path: str) -> Any:
    """Parse the document in a file; raises ConfigurationError when it cannot be read."""
    return read_json(read_file(Path(path)), path)


def pubsub(document: Any, notes: Notes) -> dict[str, Any]:
    """`transport` from the document behind `--transport-config` of `gcp-pubsub`."""
    found = _transport(document, notes)
    topics = found.pop("topics", [])
    found["topics"] = [_topic(entry) for entry in topics] if isinstance(topics, list) else topics
    return {"type": "gcp-pubsub", **found}


def _topic(entry: Any) -> Any:
    """A topic entry's `result_topic_id` is what a queue's `result_queue_name` is."""
    found = _queue(entry)
    if isinstance(found, dict) and "result_topic_id" in found:
        found.setdefault("result_queue_name", found.pop("result_topic_id"))
    return found


def _transport(document: Any, notes: Notes) -> dict[str, Any]:
    """What a document for any transport sets, without what has no effect."""
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            [Problem(path="--transport-config", message="must be a JSON object")]
        )
    found = _set(document)
    for key, why in _WITHOUT_EFFECT.items():
        if found.pop(key, None) is not None:
            notes.append(f"{key} is ignored: {why}")
    return found


def transport(document: Any, environ: Mapping[str, str], notes: Notes) -> dict[str, Any]:
    """`transport` from the document behind `--transport-config` of `redis-sortedset`."""
    found = _transport(document, notes)
    if found.pop("enable_tracing", False):
        notes.append("enable_tracing is ignored: Redis commands are not traced")
    _topology(found, environ)
    queues = found.pop("queues", [])
    found["queues"] = [_queue(entry) for entry in queues] if isinstance(queues, list) else queues
    return {"type": "redis-sortedset", **found}


def _topology(found: dict[str, Any], environ: Mapping[str, str]) -> None:
    """`mode`, `addrs` and `master_name` are parts of our URL."""
    mode = found.get("mode", "standalone")
    url = str(found.get("url") or environ.get("REDIS_URL", ""))
    if mode == "standalone":
        found.pop("mode", None)
    elif mode == "sentinel" and "master_name" in found and url:
        del found["mode"]
        found["url"] = _sentinel_url(url, found.pop("addrs", []), str(found.pop("master_name")))


def _sentinel_url(url: str, more: Any, master: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, database = rest.partition("/")
    hosts = ",".join([authority, *map(str, more if isinstance(more, list) else [])])
    return f"{scheme}+sentinel://{hosts}/{master}{slash}{database}"


def _queue(entry: Any) -> Any:
    return _gated(_set(entry)) if isinstance(entry, Mapping) else entry


def pools(document: Any, concurrency: int) -> Any:
    """`worker_pools` from the document behind `--pool-config-file`."""
    if not isinstance(document, list):
        raise ConfigurationError(
            [Problem(path="--pool-config-file", message="must be a JSON list of pools")]
        )
    return [
        _gated({"workers": concurrency, **_set(pool)}) if isinstance(pool, Mapping) else pool
        for pool in document
    ]


def merge_policy(document: Any) -> dict[str, Any]:
    """`merge_policy` from the document behind `--request-merge-policy-config-file`."""
    if not isinstance(document, Mapping) or not isinstance(
        document.get("parameters") or {}, Mapping
    ):
        raise ConfigurationError(
            [
                Problem(
                    path="--request-merge-policy-config-file",
                    message="must be a JSON object with type and parameters",
                )
            ]
        )
    found = {key: value for key, value in document.items() if key != "parameters"}
    found |= document.get("parameters") or {}
    if found.get("fairness_attribute") == "":
        del found["fairness_attribute"]
    return found


def transforms(document: Any) -> dict[str, Any]:
    """`transforms` from the document behind `--transform-config-file`."""
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            [Problem(path="--transform-config-file", message="must be a JSON object")]
        )
    found = dict(document)
    entries = found.pop("requestTransforms", None) or []
    listed = isinstance(entries, list)
    return {**found, "request": [_transform(each) for each in entries] if listed else entries}


def _transform(entry: Any) -> Any:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("parameters", {}), Mapping):
        return entry
    named = {key: value for key, value in entry.items() if key != "parameters"}
    return {**named, **entry.get("parameters", {})}


def gate(type_name: Any, parameters: Any) -> dict[str, Any]:
    """A gate from `gate_type` and `gate_params`."""
    found = _parameters(parameters) if isinstance(parameters, Mapping) else {}
    return {"type": type_name, **found}


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A number 0 counts as set: a baseline of 0 is not the default."""
    return {
        key: _parameter(key, value) for key, value in parameters.items() if value not in ("", None)
    }


def _gated(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry of a queue or a pool, its gate in our shape."""
    type_name, parameters = entry.pop("gate_type", None), entry.pop("gate_params", None)
    if type_name is not None:
        entry["gate"] = gate(type_name, parameters)
    return entry


def _parameter(key: str, value: Any) -> Any:
    if key in _JSON_PARAMETERS and isinstance(value, str):
        value = _from_text(value)
    if key == "saturation_gate_params" and isinstance(value, Mapping):
        return _parameters(value)
    if key == "gates" and isinstance(value, list):
        return [_inner(item) for item in value]
    return _inner(value) if key == "gate" else value


def _inner(value: Any) -> Any:
    if isinstance(value, Mapping) and "gate_type" in value:
        return gate(value["gate_type"], value.get("gate_params"))
    return value


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # Not JSON after all: the gate's own rules say what is wrong with it.
        return text


def _set(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the document sets, in Go's sense."""
    return {
        key: value
        for key, value in document.items()
        if key in _REQUIRED or value not in ("", 0, None)
    }
