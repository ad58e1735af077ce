"""The JSON Schema of the configuration file, for editors.

It is made from the models, and then opened for what a file may hold before variables are filled
in: `${NAME}` may stand for any number, and numbers may be strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, get_args

from async_processor.admission.settings import GateSettings
from async_processor.config.settings import Settings

_SOME_VARIABLE: Final = r"\$\{"
_AS_TEXT: Final = {
    "integer": rf"^-?\d+$|{_SOME_VARIABLE}",
    "number": rf"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|{_SOME_VARIABLE}",
    "boolean": rf"^(true|false)$|{_SOME_VARIABLE}",
}
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
        node = {key: value for key, value in node.items() if key != "discriminator"}
        # A type may be left out, and then more than one member may fit.
        node["anyOf"] = node.pop("oneOf")
    if node.get("type") == "string" and "pattern" in node:
        return {**node, "pattern": f"{node['pattern']}|{_SOME_VARIABLE}"}
    pattern = _AS_TEXT.get(str(node.get("type")))
    if pattern is None:
        return node
    described: dict[str, Any] = {key: node.pop(key) for key in _ABOUT if key in node}
    return {**described, "anyOf": [node, {"type": "string", "pattern": pattern}]}
