"""From a YAML file to `Settings`: every mistake in one go, each with its path and value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from async_processor.config.checks import faults
from async_processor.config.crews import unmanned
from async_processor.config.defaults import completed
from async_processor.config.environment import Substitution
from async_processor.config.problems import explain
from async_processor.config.setting_warnings import warnings
from async_processor.config.settings import Settings
from async_processor.config.yaml_file import read_file, read_yaml
from async_processor.errors import ConfigurationError, Problem

__all__ = ["load", "load_text", "validated", "warnings"]


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read a configuration file; raises ConfigurationError with every mistake in it."""
    return load_text(read_file(path), environ, name=str(path))


def load_text(text: str, environ: Mapping[str, str], *, name: str) -> Settings:
    """Like `load`, of the text itself; `name` stands for the file in errors of syntax."""
    substitution = Substitution(environ)
    document = substitution.document(read_yaml(text, name))
    return validated(document, environ, known_problems=substitution.problems)


def validated(
    document: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    known_problems: list[Problem] | None = None,
) -> Settings:
    """Settings from a document that is shaped like the YAML file, variables already filled in.

    Raises ConfigurationError with `known_problems` and every further mistake, except those at a
    path that is known to be wrong anyway.
    """
    document, problems = completed(document, environ)
    problems = [*(known_problems or []), *problems]
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        problems += _new(explain(error, Settings, document), problems)
    problems += _new(faults(document), problems)
    if settings is not None and settings.processes != "auto":
        problems += _new(list(unmanned(settings, settings.processes)), problems)
    if problems or settings is None:
        raise ConfigurationError(problems)
    return settings


def _new(found: list[Problem], known: list[Problem]) -> list[Problem]:
    paths = {problem.path for problem in known}
    return [problem for problem in found if problem.path not in paths]
