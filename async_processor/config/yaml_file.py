"""Reading YAML as people mean it: duplicate keys are mistakes, `off` is a word, 010 is ten."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from async_processor.errors import ConfigurationError, Problem

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
MOST_VALUES: Final = 100_000
"""What a file may hold with its aliases written out; a few nested ones could mean millions."""

DEEPEST: Final = 100
LARGEST_FILE: Final = 2**20
"""Bytes; a ConfigMap cannot hold more."""
_RARE_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core scalars, and no key twice in a mapping."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        # Before the merged keys (`<<`) are put in front, for those may be overridden.
        seen: set[str] = set()
        for key, _ in node.value:
            self._check_key(key, seen)
        return super().construct_mapping(node, deep=deep)

    def _check_key(self, key: yaml.Node, seen: set[str]) -> None:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be a plain name", key.start_mark
            )
        if key.tag == _MERGE:
            return
        if key.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"duplicate key {key.value!r}", key.start_mark
            )
        seen.add(key.value)
        key.tag = _TEXT

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        try:
            return int(self.construct_scalar(node))
        except ValueError:
            raise yaml.constructor.ConstructorError(
                None, None, "a number with too many digits", node.start_mark
            ) from None


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


_resolve("null", r"^(?:~|null|Null|NULL|)$", "~nN\0")
_Loader.yaml_implicit_resolvers[""] = [("tag:yaml.org,2002:null", re.compile(r"^$"))]
_resolve("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"^[-+]?[0-9]+$", "-+0123456789")
_resolve("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789")
_resolve("float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+.")
_resolve("merge", r"^<<$", "<")
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)


def read_yaml(text: str, name: str) -> dict[str, Any]:
    """The mapping that a YAML text holds; `name` stands for it in errors.

    Raises ConfigurationError with file and line for what is no YAML, no mapping, or has a key
    twice.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.YAMLError as error:
        raise ConfigurationError([_syntax_problem(error, name)]) from None
    except RecursionError:
        raise ConfigurationError([_too_deep(name)]) from None
    _measure(document, name)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            [Problem(path=name, message="must be a mapping of keys to values")]
        )
    return document


def _measure(document: object, name: str) -> None:
    """Refuse what would grow without end when its aliases are followed."""
    left = MOST_VALUES
    waiting = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if not isinstance(value, dict | list):
            continue
        if depth == DEEPEST:
            raise ConfigurationError([_too_deep(name)])
        left -= len(value)
        if left < 0:
            message = f"holds more than {MOST_VALUES} values with its aliases written out"
            raise ConfigurationError([Problem(path=name, message=message)])
        inner = value.values() if isinstance(value, dict) else value
        waiting += [(each, depth + 1) for each in inner]


def _too_deep(name: str) -> Problem:
    return Problem(path=name, message=f"is nested more than {DEEPEST} levels deep")


def read_file(path: Path) -> str:
    """The text of a configuration file; raises ConfigurationError when it cannot be read."""
    try:
        with path.open("rb") as file:
            found = file.read(LARGEST_FILE + 1)
        if len(found) <= LARGEST_FILE:
            return found.decode("utf-8-sig").replace("\r\n", "\n")
        message = f"is larger than {LARGEST_FILE} bytes, so it is no configuration"
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 (byte {error.start})"
    raise ConfigurationError([Problem(path=str(path), message=message)])


def _syntax_problem(error: yaml.YAMLError, name: str) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(path=name, message=f"is not YAML: {error}".replace("\n", " "))
    mark = error.problem_mark
    message = error.problem or "is not YAML"
    return Problem(path=f"{name}:{mark.line + 1}:{mark.column + 1}", message=message)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `read_yaml`, or any YAML 1.1 reader, would not take for a text."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()),
        *_Loader.yaml_implicit_resolvers.get(first, ()),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
}


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Only in double quotes are the rarer line breaks written as escapes; elsewhere they get lost.
    style = '"' if _RARE_BREAKS.intersection(text) else None
    return dumper.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(document: dict[str, Any]) -> str:
    """The document as a YAML text that `read_yaml` reads back as it was."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
