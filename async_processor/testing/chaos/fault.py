"""What a fault is: something that is done to a stage, and whom it touches."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from async_processor.testing.chaos.ledger import Incident
from async_processor.testing.chaos.replica import Replica
from async_processor.testing.chaos.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Where a fault strikes. Whatever is random about it comes from `random` alone."""

    stage: Stage
    replica: Replica
    random: Random
    incident: Incident

    def died(self) -> None:
        """The replica's process has ended now, without warning."""
        self.incident.deaths.append(time.monotonic())


Act = Callable[[Strike], Awaitable[None]]
"""Inflicts a fault, and returns when it is over."""


class Scope(Enum):
    """Whom a fault touches; two that touch the same thing do not come at once."""

    REPLICA = auto()
    BROKER = auto()
    INFERENCE = auto()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of fault. `kills`: it ends a daemon without warning."""

    name: str
    act: Act
    scope: Scope
    kills: bool = False


def fault(name: str, scope: Scope, *, kills: bool = False) -> Callable[[Act], Fault]:
    """Makes a function a fault."""
    return lambda act: Fault(name=name, act=act, scope=scope, kills=kills)
