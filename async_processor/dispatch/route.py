"""Everything that is fixed about a queue: where its requests go, by which rules, counted how."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from async_processor.admission.base import Gate
from async_processor.dispatch.known_backlog import KnownBacklog
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.second_look import SecondLook
from async_processor.dispatch.settings import QueueSettings
from async_processor.inference.headers import HeaderRules
from async_processor.listeners import Listeners
from async_processor.settlement.routing import ResultRoute
from async_processor.settlement.settle import Settler
from async_processor.settlement.triage import Triage
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.transforms.bodies import Bodies


class Route(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The parts that belong to one queue; `headers` by the merge policy's lane.

    `parked` is told each lot that has got a message from here.
    """

    queue: QueueSettings
    pool: Pool
    gate: Gate
    second_look: SecondLook
    headers: Sequence[HeaderRules]
    bodies: Bodies = Bodies()
    results: ResultRoute
    triage: Triage
    settler: Settler
    metrics: QueueMetrics
    parked: Listeners[[str]] = msgspec.field(default_factory=Listeners)
    backlog: KnownBacklog = msgspec.field(default_factory=KnownBacklog)

    def url(self, endpoint: str) -> str:
        """Where a request goes: the gateway and the message's path, else the queue's."""
        return self.queue.igw_base_url.rstrip("/") + (endpoint or self.queue.request_path_url)
