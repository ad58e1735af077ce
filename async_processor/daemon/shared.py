"""What all queues and pools of this process have in common, whatever the configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from async_processor.admission.build import GateContext
from async_processor.clock import Clock
from async_processor.daemon.readiness import Readiness
from async_processor.dispatch.parking_lots import ParkingLots
from async_processor.dispatch.suspects import Suspects
from async_processor.inference.base import Engine
from async_processor.settlement.held import Holdings
from async_processor.settlement.reaper import RetryPromoter
from async_processor.telemetry.metrics import Metrics
from async_processor.transport.base import Transport

if TYPE_CHECKING:
    from async_processor.telemetry.tracing import Tracing


class Shared(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Made once, and kept over reloads."""

    transport: Transport
    engine: Engine
    gates: GateContext
    metrics: Metrics
    holdings: Holdings
    readiness: Readiness
    suspects: Suspects
    parking: ParkingLots
    retries: RetryPromoter
    tracing: Tracing | None = None

    @property
    def clock(self) -> Clock:
        """The broker's."""
        return self.transport.clock
