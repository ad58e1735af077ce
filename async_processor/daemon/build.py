"""Builds the daemon's parts from the settings: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from async_processor.admission.build import GateContext
from async_processor.admission.crew import ONE_PROCESS, Crew
from async_processor.config.settings import (
    MemoryTransport,
    PubSubTransport,
    RedisTransport,
    Settings,
)
from async_processor.daemon.backlog import BacklogPoll
from async_processor.daemon.gate_gauges import GateGauges
from async_processor.daemon.quota_gauges import QuotaGauges
from async_processor.daemon.readiness import Readiness
from async_processor.daemon.shared import Shared
from async_processor.daemon.status import Status
from async_processor.daemon.topology import Topology
from async_processor.daemon.workshop import SideTasks, Workshop
from async_processor.dispatch.parking_lots import ParkingLots
from async_processor.dispatch.suspects import Suspects
from async_processor.inference.base import Engine
from async_processor.inference.http import HttpEngine
from async_processor.lifecycle import Service
from async_processor.settlement.cancellation import CancellationWatch
from async_processor.settlement.held import Holdings
from async_processor.settlement.lease_keeper import LeaseKeeper
from async_processor.settlement.letter_limit import LetterLimit
from async_processor.settlement.reaper import Reaper, RetryPromoter
from async_processor.telemetry.exposition import metrics_server
from async_processor.telemetry.health import health_server
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.web import WebServer
from async_processor.transport.base import Transport

if TYPE_CHECKING:
    from async_processor.telemetry.tracing import Tracing


class Parts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything that the daemon starts, runs and stops."""

    shared: Shared
    topology: Topology
    status: Status
    health: WebServer
    exposition: WebServer

    @property
    def _ports(self) -> Mapping[str, WebServer]:
        """Of several processes the supervisor answers for all."""
        if not self.shared.gates.crew.is_one:
            return {}
        return {"health_port": self.health, "metrics_port": self.exposition}

    def ports(self) -> Mapping[str, int]:
        """What this process listens on."""
        return {name: server.port for name, server in self._ports.items()}

    def services(self) -> Sequence[Service]:
        """In the order of their start: probes answer first, and the broker, which may let us
        wait, is asked last."""
        gates = self.shared.gates
        tracing = [self.shared.tracing] if self.shared.tracing is not None else []
        return [
            *tracing,
            *self._ports.values(),
            self.shared.engine,
            gates.sensors,
            gates.redis,
            self.topology,
            self.shared.transport,
        ]

    def taking(self) -> SideTasks:
        """Side tasks that bring work in, or share it out, besides those of the queues."""
        shared, broker = self.shared, self.topology.settings.transport
        reaper = Reaper(
            shared.transport, shared.clock, self.topology.metrics, interval=broker.reclaim_interval
        )
        letters = LetterLimit(
            shared.transport,
            shared.clock,
            shared.metrics,
            limit=broker.dead_letter_limit,
            interval=broker.reclaim_interval,
        )
        return {
            "reaper": reaper.run(),
            "dead letters": letters.run(),
            "retries": shared.retries.run(),
        }

    def keeping(self) -> SideTasks:
        """Side tasks that look after work that is here."""
        shared, broker = self.shared, self.topology.settings.transport
        keeper = LeaseKeeper(
            shared.transport,
            shared.holdings,
            shared.clock,
            self.topology.metrics,
            lease_ttl=broker.lease_ttl,
        )
        cancellations = CancellationWatch(shared.transport, shared.holdings, shared.clock)
        tasks = {
            "leases": keeper.run(),
            "cancellations": cancellations.run(),
            "gauges": GateGauges(self.topology, shared.metrics, shared.clock).run(),
            "sensors": shared.gates.sensors.run(),
            "gates": shared.gates.run(),
            "retired gates": self.topology.retirement.run(),
        }
        if broker.backlog_poll_interval:
            poll = BacklogPoll(
                shared.transport,
                self.topology,
                shared.clock,
                interval=broker.backlog_poll_interval,
            )
            quotas = QuotaGauges(
                self.topology,
                shared.gates,
                shared.metrics,
                shared.clock,
                interval=broker.backlog_poll_interval,
            )
            tasks |= {"backlog": poll.run(), "quotas": quotas.run()}
        if shared.gates.roll is not None:
            # Others take over when what runs here has ended, not when this replica begins to drain.
            tasks["census"] = shared.gates.roll.run()
        return tasks


def build(
    settings: Settings,
    *,
    transport: Transport | None = None,
    engine: Engine | None = None,
    tracing: Tracing | None = None,
    crew: Crew = ONE_PROCESS,
) -> Parts:
    """Make the parts; nothing is connected yet.

    A transport or an engine given here is used instead of the configured one. Of a crew's settings
    this process has its part.
    """
    transport = transport or build_transport(settings)
    engine = engine or build_engine(settings, transport)
    metrics = Metrics()
    if tracing is not None:
        from async_processor.inference.traced import TracedEngine
        from async_processor.telemetry.tracing import trace_id

        engine, metrics = TracedEngine(engine, tracing), Metrics(trace_id)
    shared = Shared(
        transport=transport,
        engine=engine,
        gates=_gate_context(settings, transport, metrics, crew),
        metrics=metrics,
        holdings=Holdings(),
        readiness=Readiness(),
        suspects=Suspects(),
        parking=ParkingLots(),
        retries=RetryPromoter(transport),
        tracing=tracing,
    )
    topology = Topology(Workshop(settings, shared), shared)
    status = Status(transport, topology, shared.holdings, shared.readiness)
    return Parts(
        shared=shared,
        topology=topology,
        status=status,
        health=_health(settings, shared, status),
        exposition=_exposition(settings, shared),
    )


def build_engine(settings: Settings, transport: Transport) -> Engine:
    """The HTTP client; the workers bound its connections."""
    return HttpEngine(
        clock=transport.clock,
        answer_bytes=settings.limits.answer_bytes,
        header_bytes=settings.limits.header_bytes,
        tls=settings.inference.tls,
    )


def build_transport(settings: Settings) -> Transport:
    """The transport that the settings name."""
    match settings.transport:
        case RedisTransport() as broker:
            from async_processor.transport.redis_sorted_set import RedisSortedSet

            queue_names = [queue.queue_name for queue in broker.queues]
            return RedisSortedSet(broker, queue_names, claim_bytes=settings.limits.claim_bytes)
        case PubSubTransport() as broker:
            from async_processor.transport.google_pubsub import GooglePubSub

            return GooglePubSub(
                broker, {topic.queue_name: topic.topic_id for topic in broker.topics}
            )
        case MemoryTransport() as broker:
            from async_processor.transport.memory import MemoryTransport as Memory

            return Memory(broker)


def _gate_context(
    settings: Settings, transport: Transport, metrics: Metrics, crew: Crew
) -> GateContext:
    """Replicas of one deployment share a configuration, and so its first queue."""
    broker, clock = settings.transport, transport.clock
    if not isinstance(broker, RedisTransport):
        return GateContext(prometheus=settings.prometheus, clock=clock, metrics=metrics, crew=crew)
    return GateContext(
        prometheus=settings.prometheus,
        clock=clock,
        redis_url=broker.url,
        tls=broker.tls,
        metrics=metrics,
        queue_name=settings.queues[0].queue_name,
        crew=crew,
    )


def _health(settings: Settings, shared: Shared, status: Status) -> WebServer:
    server = settings.server
    return health_server(
        serving=lambda: shared.readiness.serving,
        ping=shared.transport.ping,
        status=status.read,
        clock=shared.clock,
        port=server.health_port,
        bind=server.bind,
        bearer_token=server.bearer_token,
    )


def _exposition(settings: Settings, shared: Shared) -> WebServer:
    server = settings.server
    return metrics_server(
        shared.metrics,
        port=server.metrics_port,
        bind=server.bind,
        bearer_token=server.bearer_token,
    )
