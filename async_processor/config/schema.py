"""The JSON Schema of the configuration file, for editors.

It is made from the models, and then opened for what a file may hold before variables are filled
in: `${NAME}` may stand for any number, and numbers may be strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, get_args

from async_processor.admission.settings import GateSettings
from async_processor.config.defaults import DEFAULT_MERGE_POLICY, DEFAULT_TRANSPORT
from async_processor.config.settings import Settings

_SOME_VARIABLE: Final = r"\$\{"
_AS_TEXT: Final = {
    "integer": rf"^-?\d+$|{_SOME_VARIABLE}",
    "number": rf"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|{_SOME_VARIABLE}",
    "boolean": rf"^(true|false)$|{_SOME_VARIABLE}",
}
_BOUNDS: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
}
"""Of what reads numbers in its own way the models' schema has the bounds under these names."""

_LEFT_OUT: Final = frozenset({DEFAULT_TRANSPORT, DEFAULT_MERGE_POLICY})
"""What is meant where no type is written; elsewhere there has to be one."""

_ABOUT: Final = ("title", "description", "default")
_OTHER_NAMES: Final = {
    "claim_lease_ttl_seconds": ("lease_ttl", "Another name of lease_ttl, in seconds."),
    "claim_reclaim_interval_ms": (
        "reclaim_interval",
        "Another name of reclaim_interval, in milliseconds.",
    ),
}


def schema() -> dict[str, Any]:
    """The schema as plain data."""
    whole = Settings.model_json_schema()
    models = whole["$defs"]
    for model in get_args(get_args(GateSettings)[0]):
        models[model.__name__].setdefault("required", []).insert(0, "type")
    for name in ("RedisTransport", "PubSubTransport", "MemoryTransport"):
        known = models[name]["properties"]
        known |= {
            key: {"type": "number", "description": description}
            for key, (ours, description) in _OTHER_NAMES.items()
            if ours in known
        }
    whole = _mapped(whole, _opened)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "async-processor configuration",
        **{key: value for key, value in whole.items() if key != "title"},
    }


def schema_text() -> str:
    """The schema as it is printed and kept in the repository."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _mapped(node: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(node, dict):
        return change({key: _mapped(value, change) for key, value in node.items()})
    if isinstance(node, list):
        return [_mapped(item, change) for item in node]
    return node


def _opened(node: dict[str, Any]) -> dict[str, Any]:
    if "discriminator" in node:
        return _by_type(node)
    node = {_BOUNDS.get(key, key): value for key, value in node.items()}
    if node.get("type") == "string" and "pattern" in node:
        return {**node, "pattern": f"{node['pattern']}|{_SOME_VARIABLE}"}
    pattern = _AS_TEXT.get(str(node.get("type")))
    if pattern is None:
        return node
    described: dict[str, Any] = {key: node.pop(key) for key in _ABOUT if key in node}
    return {**described, "anyOf": [node, {"type": "string", "pattern": pattern}]}


def _by_type(node: dict[str, Any]) -> dict[str, Any]:
    """Only the mistakes of the type that is written there are told, not those of all types."""
    types: dict[str, str] = node["discriminator"]["mapping"]
    rest = {key: value for key, value in node.items() if key not in ("discriminator", "oneOf")}
    may_be_left_out = not _LEFT_OUT.isdisjoint(types)
    return {
        **rest,
        "type": "object",
        "properties": {"type": {"enum": list(types)}},
        **({} if may_be_left_out else {"required": ["type"]}),
        "allOf": [{"if": _is_of(name), "then": {"$ref": model}} for name, model in types.items()],
    }


def _is_of(name: str) -> dict[str, Any]:
    written = {"properties": {"type": {"const": name}}}
    return written if name in _LEFT_OUT else {**written, "required": ["type"]}
