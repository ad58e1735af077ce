"""What a process is told at its start, and the settings as they travel to it."""

from __future__ import annotations

import msgspec

from async_processor.config.settings import Settings


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """`settings` is the text of `written`; `rank` is in [0, processes)."""

    settings: str
    processes: int
    rank: int
    level: str


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What a process answers: who it is in the broker ("" where that is not known), and whether
    its histograms have exemplars."""

    owner: str
    traced: bool


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a process ends: the mistakes in its configuration, each with its path, or else a
    message."""

    problems: tuple[tuple[str, str], ...]
    message: str


def written(settings: Settings) -> str:
    """The settings as text, secrets included: to be sent on a line, and nowhere else."""
    return settings.model_dump_json(by_alias=True)


def read(text: str) -> Settings:
    """The settings that were written."""
    return Settings.model_validate_json(text)
