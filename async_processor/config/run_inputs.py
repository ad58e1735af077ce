"""Everything behind `run`: our YAML file, or the flags and documents of the Go implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from async_processor.config import go_flags
from async_processor.config.fingerprint import fingerprint
from async_processor.config.go_flags import Flags
from async_processor.config.go_inputs import document_from
from async_processor.config.go_notes import deprecations, exposures
from async_processor.config.load import load, validated, warnings
from async_processor.config.settings import Settings
from async_processor.errors import ConfigurationError, Problem


class RunInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What `run` was told.

    `notes` are sentences for the log: inputs without effect or with a new name, and settings that
    are legal and probably not meant. `files` are those that the settings were read from, with the
    fingerprint that they had just before. `verbosity` is that of `-v`: 2 by default, 4 and more for
    debugging.
    """

    settings: Settings
    files: tuple[Path, ...] = ()
    fingerprint: bytes = b""
    notes: tuple[str, ...] = ()
    verbosity: int = 2


def settings_from(argv: Sequence[str], environ: Mapping[str, str]) -> RunInputs:
    """Read the words behind `run`; raises ConfigurationError with every mistake found."""
    flags = go_flags.parse(argv)
    files = tuple(Path(str(value)) for name, value in flags.items() if _is_file(name) and value)
    before = fingerprint(files)
    settings, notes = _read(flags, environ)
    return RunInputs(
        settings=settings,
        notes=(*notes, *map(str, warnings(settings))),
        files=files,
        fingerprint=before,
        verbosity=int(flags.get("v", 2)),
    )


def _is_file(flag: str) -> bool:
    return flag == "config" or flag.endswith("-config-file")


def _read(flags: Flags, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    if "config" in flags:
        return _from_file(flags, environ), []
    if not flags.keys() - go_flags.LOGGING.keys():
        raise ConfigurationError([Problem(path="run", message="needs --config FILE")])
    document, notes = document_from(flags, environ)
    return validated(document, environ), [*deprecations(flags), *exposures(flags), *notes]


def _from_file(flags: Flags, environ: Mapping[str, str]) -> Settings:
    others = flags.keys() - go_flags.LOGGING.keys() - {"config"}
    if others:
        message = "cannot be used together with --config: set it in the file"
        raise ConfigurationError(
            [Problem(path=f"--{name}", message=message) for name in sorted(others)]
        )
    return load(Path(str(flags["config"])), environ)
