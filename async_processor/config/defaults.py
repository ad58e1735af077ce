"""What a configuration file may leave out or say in another way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_processor.config.wording import quoted
from async_processor.errors import Problem

DEFAULT_TRANSPORT: Final = "redis-sortedset"
DEFAULT_MERGE_POLICY: Final = "random-robin"

_OTHER_NAMES: Final = {
    "claim_lease_ttl_seconds": ("lease_ttl", "s"),
    "claim_reclaim_interval_ms": ("reclaim_interval", "ms"),
}
"""Keys of the Go implementation: ours, and the unit that theirs has in its name."""


def completed(
    document: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The document without empty entries and other names, with what the environment sets."""
    whole: dict[str, Any] = without_nulls(document)
    if isinstance(whole.get("merge_policy"), dict):
        whole["merge_policy"].setdefault("type", DEFAULT_MERGE_POLICY)
    transport = whole.get("transport")
    if not isinstance(transport, dict):
        return whole, []
    problems = _rename(transport)
    transport.setdefault("type", DEFAULT_TRANSPORT)
    if transport["type"] == DEFAULT_TRANSPORT and environ.get("REDIS_URL"):
        transport.setdefault("url", environ["REDIS_URL"])
    return whole, problems


def without_nulls(value: Any) -> Any:
    """A key with nothing behind it (all of its lines may be commented out) was not set."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value


def _rename(transport: dict[str, Any]) -> list[Problem]:
    problems = []
    for other, (ours, unit) in _OTHER_NAMES.items():
        if other not in transport:
            continue
        written = transport.pop(other)
        if ours in transport:
            message = (
                f"got {quoted(written)}, but {ours} is set too: they are two names of one setting"
            )
            problems.append(Problem(path=f"transport.{other}", message=message))
        else:
            transport[ours] = f"{written}{unit}"
    return problems
