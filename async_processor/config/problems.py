"""From a validation error to one line: the path in the file, the value, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from async_processor.config.json_text import json_fault, looks_like_json
from async_processor.config.places import Place, find
from async_processor.config.wording import quoted
from async_processor.errors import Problem
from async_processor.fields import MASK, Section

_NOT_AVAILABLE: Final = "is not available in this version"
_REFUSED_TYPES: Final = {
    "redis-pubsub": "loses messages and is not supported: use redis-sortedset (as a flag: "
    "--transport=redis-sortedset), let producers ZADD to the queue with the deadline as score, "
    "and read results with BRPOP"
}
_TYPE_ERRORS: Final = frozenset({"union_tag_invalid", "union_tag_not_found", "literal_error"})
_SHAPE_ERRORS: Final = frozenset({"dict_type", "model_attributes_type", "model_type", "tuple_type"})
_RULES: Final = {
    "greater_than": "must be more than {gt:.15g}",
    "greater_than_equal": "must be {ge:.15g} or more",
    "less_than": "must be less than {lt:.15g}",
    "less_than_equal": "must be {le:.15g} or less",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of a sensible size",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text (put it in quotes)",
    "string_too_short": "must not be empty",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "too_short": "must have at least {min_length} entry",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def explain(error: ValidationError, root: type[Section], document: Any) -> list[Problem]:
    """One problem for each mistake that the error lists."""
    found = [
        (details, find(root, document, details["loc"]))
        for details in error.errors(include_url=False)
    ]
    return [
        Problem(path=_path(details, place), message=_message(details, place))
        for details, place in found
        if not _follows(details, place)
    ]


def _follows(details: ErrorDetails, place: Place) -> bool:
    """Whether this is only the consequence of another mistake that is listed too."""
    if details["type"] == "too_short":
        return bool(place.value)
    return details["type"] == "default_factory_not_called"


def _path(details: ErrorDetails, place: Place) -> str:
    if details["type"] != "union_tag_invalid":
        return place.path
    named_apart = place.path.removesuffix("_params")
    return f"{place.path}.type" if named_apart == place.path else named_apart


def _message(details: ErrorDetails, place: Place) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        return unknown_key(place.key, place.section)
    if details["loc"][-1] == "[key]":
        return _about_key(details, place)
    if kind == "missing":
        return "is required"
    if kind == "union_tag_not_found":
        return f"needs a type: {', '.join(place.types)}"
    if kind in _TYPE_ERRORS and place.types:
        return unknown_type(_tag(details, place), place)
    if kind in ("value_error", "too_short") and isinstance(place.value, Mapping | list):
        return _rule(details)
    return f"got {shown(place)}, {_rule(details)}{_about_text(details, place)}"


def _about_key(details: ErrorDetails, place: Place) -> str:
    if details["type"] == "literal_error":
        return "unknown key" + suggestion(place.key, _quoted(details["ctx"]["expected"]))
    return f"the name {_rule(details)}"


def _about_text(details: ErrorDetails, place: Place) -> str:
    """What to say about a text that stands in the place of a list or a mapping."""
    if details["type"] not in _SHAPE_ERRORS or not looks_like_json(place.value):
        return ""
    return f"; {json_fault(place.value) or 'take it out of its quotes'}"


def _quoted(text: str) -> list[str]:
    """The names in a list like `'a', 'b' or 'c'`."""
    return text.split("'")[1::2]


def _tag(details: ErrorDetails, place: Place) -> str:
    return str(details.get("ctx", {}).get("tag", place.value))


def _rule(details: ErrorDetails) -> str:
    rule = _RULES.get(details["type"])
    return rule.format(**details.get("ctx", {})) if rule else details["msg"]


def shown(place: Place) -> str:
    """The value that stands there."""
    return MASK if place.secret else quoted(place.value)


def unknown_key(key: str, section: type[Section] | None) -> str:
    """What to say about a key that a section does not have."""
    if section is None:
        return "unknown key"
    if key in section.planned:
        return _NOT_AVAILABLE
    return "unknown key" + suggestion(key, list(section.keys()))


def unknown_type(name: str, place: Place) -> str:
    """What to say about a type that this version cannot build."""
    if name in _REFUSED_TYPES:
        return f"{name} {_REFUSED_TYPES[name]}"
    return f"unknown type {quoted(name)}" + suggestion(name, place.types)


def suggestion(name: str, known: Sequence[str]) -> str:
    """The nearest known name, or all of them when none is near."""
    near = get_close_matches(name.lower(), known, n=1) or [
        each for each in known if name and each.startswith(name)
    ]
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
