"""Whether this replica takes part: between the end of its start and the begin of its drain."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """Where the daemon is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"


class Readiness:
    """Written by the daemon, read by `/readyz` and `/status`."""

    def __init__(self) -> None:
        self.stage = Stage.STARTING

    @property
    def serving(self) -> bool:
        return self.stage is Stage.RUNNING
