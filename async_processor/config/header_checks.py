"""Checks that no header of a call is set twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from async_processor.config.document import mapping, queues
from async_processor.config.wording import step
from async_processor.dispatch.settings import MergePolicySettings
from async_processor.errors import Problem
from async_processor.inference.headers import OLDER_OBJECTIVE

_MARKS: Final = ("objective_header", "fairness_header", "priority_header")


def header_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Every header that something else sets already."""
    headers = mapping(mapping(document.get("inference")).get("headers"))
    yield from _repeated((step("inference.headers", name), str(name)) for name in headers)
    yield from _repeated(_marks(mapping(document.get("merge_policy"))))
    if any(str(name).lower() == "authorization" and value for name, value in headers.items()):
        yield from _two_logins(document)


def _marks(policy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    fields = MergePolicySettings.model_fields
    for key in _MARKS:
        name = policy.get(key, fields[key].default if key in fields else "")
        if name:
            yield f"merge_policy.{key}", str(name)
        if name and key == "objective_header" and str(name).lower() != OLDER_OBJECTIVE:
            yield f"the older name of merge_policy.{key}", OLDER_OBJECTIVE


def _repeated(named: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for path, name in named:
        other = first.setdefault(name.lower(), path)
        if other != path:
            message = f"is the same header as {other}: the case of letters does not count"
            yield Problem(path=path, message=message)


def _two_logins(document: Mapping[str, Any]) -> Iterator[Problem]:
    for path, queue in queues(document):
        if "@" in str(queue.get("igw_base_url", "")):
            message = "has a user, and inference.headers has Authorization: only one can be sent"
            yield Problem(path=f"{path}.igw_base_url", message=message)
