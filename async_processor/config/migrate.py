"""Prints our YAML for the Go implementation's flags and documents, and for its chart's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from async_processor.config import go_chart, go_flags
from async_processor.config.defaults import completed
from async_processor.config.environment import escaped
from async_processor.config.go_chart_values import chart_values
from async_processor.config.go_inputs import document_from
from async_processor.config.go_notes import verbosity
from async_processor.config.load import validated
from async_processor.config.yaml_file import read_yaml, write_yaml
from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import without_password


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """Our configuration file for what the Go implementation was given, and what to know of it."""

    yaml: str
    notes: tuple[str, ...]


def migrate(argv: Sequence[str], environ: Mapping[str, str]) -> Migration:
    """Turn Go flags into YAML, which means the same in the same environment.

    A URL with a password that an environment variable holds is printed as `${NAME}`.
    Raises ConfigurationError with every mistake found.
    """
    flags = go_flags.parse(argv)
    if "config" in flags or not flags.keys() - go_flags.LOGGING.keys():
        message = "needs the flags of the Go implementation, e.g. --transport=redis-sortedset"
        raise ConfigurationError([Problem(path="config migrate", message=message)])
    document, notes = document_from(flags, environ)
    validated(document, environ)
    document, _ = completed(document, environ)
    notes += verbosity(flags)
    text = _Concealment(environ, notes).value(document, "")
    return Migration(yaml=write_yaml(text), notes=tuple(notes))


def migrate_values(text: str, name: str) -> Migration:
    """Turn values of the Go implementation's chart into values of ours.

    `name` stands for the text in errors. Raises ConfigurationError with every mistake found; paths
    are those of our configuration where the mistake is in what the daemon was told.
    """
    values = read_yaml(text, name)
    ap = values.get("ap")
    if not isinstance(ap, dict):
        message = "has no `ap`: these are not values of llm-d-async, or of its async-processor"
        raise ConfigurationError([Problem(path=name, message=message)])
    notes: list[str] = []
    config = go_chart.configuration(ap, notes)
    validated(config, {})
    ours = chart_values(values, config, notes)
    config, _ = completed(config, {})
    ours["config"] = _Concealment({}, notes).value(config, "")
    return Migration(yaml=write_yaml(ours), notes=tuple(notes))


class _Concealment:
    """Puts variables in the place of secrets, and escapes what only looks like a variable."""

    def __init__(self, environ: Mapping[str, str], notes: list[str]) -> None:
        self._names = {value: name for name, value in sorted(environ.items(), reverse=True)}
        self._notes = notes

    def value(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, dict):
            return {
                key: self.value(item, f"{path}.{key}".removeprefix("."))
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    def _text(self, text: str, path: str) -> str:
        if without_password(text) == text and path != "transport.url":
            return escaped(text)
        if text in self._names:
            return f"${{{self._names[text]}}}"
        if without_password(text) != text:
            self._notes.append(f"{path} contains a password: better keep it in a variable")
        return escaped(text)
