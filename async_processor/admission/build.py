"""Makes the gates that a configuration names: one case per type.

What reads over HTTP is imported only when a gate of the configuration reads so.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from async_processor.admission import pool_budget, saturation
from async_processor.admission import settings as configured
from async_processor.admission.base import Gate
from async_processor.admission.census import Census, RollCensus
from async_processor.admission.chain import Chain
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.constant import ConstantGate
from async_processor.admission.crew import ONE_PROCESS, Crew
from async_processor.admission.in_flight import InFlight
from async_processor.admission.leased_rate import LeasedRateGate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.patience import Patience
from async_processor.admission.quota.book import Book
from async_processor.admission.quota.books import Books, keys_of
from async_processor.admission.quota.gate import QuotaGate
from async_processor.admission.quota.tenants import Tenants
from async_processor.admission.sensor_gate import BudgetRule, SensorGate
from async_processor.admission.set_budget import SetBudgetGate
from async_processor.admission.start_ledger import StartAllowance, StartLedger
from async_processor.admission.tiers import TierGate
from async_processor.clock import Clock
from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import TlsSettings
from async_processor.lifecycle import Watch
from async_processor.redis_io.leased_bucket import LeasedBucket
from async_processor.redis_io.roll import RedisRoll
from async_processor.redis_io.shared import SharedClient, SharedClients
from async_processor.sensors.base import Sensor, Source
from async_processor.sensors.polling import JITTER
from async_processor.sensors.redis_value import RedisValueSource
from async_processor.sensors.registry import Sensors
from async_processor.sensors.settings import PrometheusSettings
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import Metrics

_log = get_logger(__name__)

_AsksPrometheus = (
    configured.PrometheusBudgetGate
    | configured.PrometheusQueryGate
    | configured.PrometheusSaturationGate
    | configured.VllmPoolGate
)

SCRAPE_INTERVAL: Final = 1.0
"""Seconds between two looks at a metrics page: a page is cheap, and a second old is old enough."""

EARLIEST: Final = 1 - JITTER
"""Share of the interval after which the next reading comes at the earliest."""

BUDGET_KEY_INTERVAL: Final = 0.08
"""Seconds between two looks at a budget key while work waits; with all jitter less than 100 ms."""


class GateContext:
    """What gates share: the clock, Prometheus, Redis, and what several of them look at.

    `redis_url` is the transport's, empty when it has none; `tls` is how its certificates are
    checked, and those of other servers too. `queue_name` is a queue that all replicas work on:
    those that do divide among them what gates share; without one this replica is alone. What they
    do not share is divided by this replica's processes, the `crew`.
    """

    def __init__(
        self,
        *,
        prometheus: PrometheusSettings | None,
        clock: Clock,
        redis_url: str = "",
        tls: TlsSettings | None = None,
        metrics: Metrics | None = None,
        queue_name: str = "",
        crew: Crew = ONE_PROCESS,
    ) -> None:
        self.crew = crew
        self.prometheus = prometheus
        self.clock = clock
        self.redis_url = redis_url
        self.redis = SharedClients(tls=tls or TlsSettings(), clock=clock)
        self.watch = Watch()
        """The side tasks of gates."""
        self.quotas = Books(self.redis, clock=clock, watch=self.watch)
        self.metrics = metrics or Metrics()
        self._in_flight = WeakValueDictionary[tuple[Hashable, int], InFlight]()
        self._ledgers: WeakKeyDictionary[Sensor, StartLedger] = WeakKeyDictionary()
        self.roll = self._roll(queue_name)
        """Of the replicas; its `run` keeps this one on it."""

    def census(self, spot: Spot) -> Census:
        """What a gate is divided by."""
        if spot.shared and self.roll is not None:
            return self.roll  # each process enters it by itself
        return self.crew.census(spot.pool, spot.workers)

    def allowance(self, sensor: Sensor, spot: Spot) -> StartAllowance:
        """What a gate over this sensor may let start; all of them spend the same readings."""
        ledger = self._ledgers.setdefault(sensor, StartLedger())
        return StartAllowance(ledger, pool=spot.pool, last=spot.last)

    def in_flight(self, spot: Spot) -> InFlight:
        """What runs under the next limit of a spot: a gate that replaces another goes on with it.

        Limits of one place are told apart by their order; each counts all that run there.
        """
        if spot.place is None:
            return InFlight()
        return self._in_flight.setdefault((spot.place, next(spot.limits)), InFlight())

    def _roll(self, queue_name: str) -> RollCensus | None:
        if not self.redis_url or not queue_name:
            return None
        return RollCensus(RedisRoll(self.redis.at(self.redis_url), queue_name), self.clock)

    async def run(self) -> None:
        """Run until cancelled; raises SideTaskDied when a gate's side task does."""
        raise await self.watch.failure()

    @cached_property
    def sensors(self) -> Sensors:
        """Starts and stops with the process; its `run` says when a sensor dies."""
        return Sensors(self.clock)


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a gate stands: the pool that its budget is of, whether it is that pool's own (`last`),
    and whether replicas share the gate.

    `place` is the same for the gates that replace each other; `limits` numbers the limits in one.
    """

    pool: str
    workers: LiveNumber
    last: bool = False
    shared: bool = False
    place: Hashable | None = None
    limits: Iterator[int] = msgspec.field(default_factory=itertools.count)


def build_gate(
    settings: configured.GateSettings,
    context: GateContext,
    *,
    workers: LiveNumber,
    pool: str = "default",
    last: bool = False,
    place: Hashable | None = None,
) -> Gate:
    """The gate of a queue, or (`last`) of a pool; its budget is of the `workers` of `pool`.

    What runs counts also under the gate that comes after it at the same `place`.

    Raises:
        ConfigurationError: a gate over Prometheus without a Prometheus, or over Redis without one.
    """
    return _build(settings, context, Spot(pool=pool, workers=workers, last=last, place=place))


def asks_prometheus(settings: configured.GateSettings) -> bool:
    """Whether a gate, or one that it is made of, is built from the settings of Prometheus."""
    match settings:
        case configured.CompositeGate(gates=gates):
            return any(map(asks_prometheus, gates))
        case configured.WaitOnRefuseGate(gate=gate):
            return asks_prometheus(gate)
        case configured.TierPriorityAdmissionGate(saturation_gate_params=gate):
            return asks_prometheus(gate)
        case configured.VllmPoolGate(selector=selector):
            return bool(selector)
        case _:
            return isinstance(settings, _AsksPrometheus)


def _build(settings: configured.GateSettings, context: GateContext, spot: Spot) -> Gate:
    if settings.shared and not spot.shared:
        spot = msgspec.structs.replace(spot, shared=True)
    match settings:
        case configured.ConstantGate():
            return _constant(context, spot)
        case configured.LocalMaxConcurrencyGate(limit=limit, gating_mode=mode):
            blocking = mode is configured.GatingMode.BLOCKING
            return ConcurrencyGate(
                LiveNumber(limit),
                blocking=blocking,
                census=context.census(spot),
                in_flight=context.in_flight(spot),
            )
        case configured.EndpointScrapeGate():
            return _endpoint_scrape(settings, context, spot)
        case configured.VllmPoolGate():
            return _vllm_pool(settings, context, spot)
        case configured.PrometheusQueryGate():
            rule = BudgetRule(fallback=settings.fallback)
            return _over_prometheus(settings, settings.query, rule, context, spot)
        case configured.PrometheusSaturationGate():
            query, rule = saturation.query(settings), saturation.rule(settings)
            return _over_prometheus(settings, query, rule, context, spot)
        case configured.PrometheusBudgetGate():
            return _prometheus_budget(settings, context, spot)
        case configured.RedisGate():
            return _redis(settings, context, spot)
        case configured.RedisLeasedRateGate():
            return _redis_leased_rate(settings, context, spot)
        case configured.RedisQuotaGate():
            return _redis_quota(settings, context)
        case configured.CompositeGate(gates=gates):
            return Chain([_build(gate, context, spot) for gate in gates])
        case configured.WaitOnRefuseGate(gate=gate):
            return Patience(_build(gate, context, spot))
        case configured.TierPriorityAdmissionGate(saturation_gate_params=gate):
            return TierGate(_build(gate, context, spot), tier_label=settings.tier_label)


def _constant(context: GateContext, spot: Spot) -> Gate:
    """One that is shared lets this replica use its part of the workers."""
    if not spot.shared:
        return ConstantGate()
    census = context.census(spot)
    return ConcurrencyGate(
        spot.workers,
        blocking=False,
        census=census,
        in_flight=context.in_flight(spot),
        type_name="constant",
    )


def _endpoint_scrape(
    settings: configured.EndpointScrapeGate, context: GateContext, spot: Spot
) -> Gate:
    from async_processor.admission import scraped

    source = scraped.source(settings, context.sensors.http)
    return _over_pages(settings, source, scraped.rule(settings), context, spot)


def _over_pages(
    settings: configured.EndpointScrapeGate | configured.VllmPoolGate,
    source: Source,
    rule: BudgetRule,
    context: GateContext,
    spot: Spot,
) -> Gate:
    return _over_readings(settings, source, SCRAPE_INTERVAL, rule, context, spot)


def _vllm_pool(settings: configured.VllmPoolGate, context: GateContext, spot: Spot) -> Gate:
    from async_processor.admission import vllm

    rule = vllm.rule(settings)
    if settings.selector:
        prometheus = _prometheus(settings.type, context)
        asked = vllm.scraped_source(settings, prometheus.url, context.sensors.http)
        return _over_readings(settings, asked, prometheus.cache_ttl, rule, context, spot)
    source = vllm.source(settings, context.sensors.http)
    return _over_pages(settings, source, rule, context, spot)


def _prometheus_budget(
    settings: configured.PrometheusBudgetGate, context: GateContext, spot: Spot
) -> Gate:
    query, rule = pool_budget.query(settings), pool_budget.rule(settings)
    gate = _over_prometheus(settings, query, rule, context, spot)
    _log.info(
        "prometheus_budget_gate",
        pool=settings.pool,
        closes_at_requests_per_ready_pod=pool_budget.closing_point(settings),
        query=query,
    )
    return gate


def _redis(settings: configured.RedisGate, context: GateContext, spot: Spot) -> Gate:
    source = RedisValueSource(_redis_client(settings, context), settings.budget_key, absent=1.0)
    return SetBudgetGate(
        settings.type,
        context.sensors.eager(source, BUDGET_KEY_INTERVAL),
        workers=spot.workers,
        clock=context.clock,
        census=context.census(spot),
        in_flight=context.in_flight(spot),
    )


def _redis_leased_rate(
    settings: configured.RedisLeasedRateGate, context: GateContext, spot: Spot
) -> Gate:
    pool_id = settings.pool_id or spot.pool
    bucket = LeasedBucket(
        _redis_client(settings, context),
        control_key=settings.control_key,
        state_key=settings.bucket_key,
        pool_id=pool_id,
        burst=settings.burst_seconds,
    )
    return LeasedRateGate(
        bucket,
        context.metrics.drain_limit(pool_id),
        workers=spot.workers,
        clock=context.clock,
        watch=context.watch,
    )


def _redis_client(settings: configured.RedisGateSection, context: GateContext) -> SharedClient:
    return context.redis.at(_redis_url(settings, context))


def quota_book(settings: configured.RedisQuotaGate, context: GateContext) -> Book:
    """The count of a quota, which all gates of this process share that have it.

    Raises ConfigurationError where there is no Redis for it, or its URL cannot be used.
    """
    return context.quotas.book(_redis_url(settings, context), settings)


def _redis_quota(settings: configured.RedisQuotaGate, context: GateContext) -> Gate:
    return QuotaGate(
        quota_book(settings, context),
        Tenants(settings.attribute, default=settings.limit, limits=settings.limits),
        name=keys_of(settings).group,
        blocking=settings.gating_mode is configured.GatingMode.BLOCKING,
        missing=settings.missing_attribute,
        clock=context.clock,
        watch=context.watch,
    )


def _redis_url(settings: configured.RedisGateSection, context: GateContext) -> str:
    url = settings.redis_url(context.redis_url)
    if not url:
        message = "is missing: the gate needs a Redis, and the transport has none"
        raise ConfigurationError([Problem(path="gate.url", message=message)])
    return url


def _over_prometheus(
    settings: _AsksPrometheus,
    query: str,
    rule: BudgetRule,
    context: GateContext,
    spot: Spot,
) -> Gate:
    from async_processor.sensors.promql import PromqlSource

    prometheus = _prometheus(settings.type, context)
    source = PromqlSource(url=prometheus.url, query=query, client=context.sensors.http)
    return _over_readings(settings, source, prometheus.cache_ttl, rule, context, spot)


def _over_readings(
    settings: configured.EndpointScrapeGate | _AsksPrometheus,
    source: Source,
    interval: float,
    rule: BudgetRule,
    context: GateContext,
    spot: Spot,
) -> Gate:
    sensor = context.sensors.polling(source, interval)
    nameless = (configured.EndpointScrapeGate, configured.VllmPoolGate)
    return SensorGate(
        settings.type,
        sensor,
        rule,
        workers=spot.workers,
        clock=context.clock,
        allowance=context.allowance(sensor, spot),
        interval=interval * EARLIEST,
        census=context.census(spot),
        pool="" if isinstance(settings, nameless) else settings.pool,
    )


def _prometheus(gate_type: str, context: GateContext) -> PrometheusSettings:
    if context.prometheus is None:
        message = f"is missing, and a gate of type {gate_type!r} needs it"
        raise ConfigurationError([Problem(path="prometheus.url", message=message)])
    return context.prometheus
