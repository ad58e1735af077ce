"""Makes the gates that a configuration names: one case per type."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from async_processor.admission import pool_budget, saturation, scraped, vllm
from async_processor.admission import settings as configured
from async_processor.admission.base import Gate
from async_processor.admission.chain import Chain
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.constant import ConstantGate
from async_processor.admission.patience import Patience
from async_processor.admission.quota.books import Books, keys_of
from async_processor.admission.quota.gate import QuotaGate
from async_processor.admission.quota.tenants import Tenants
from async_processor.admission.sensor_gate import BudgetRule, SensorGate
from async_processor.admission.tiers import TierGate
from async_processor.clock import Clock
from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import TlsSettings
from async_processor.lifecycle import Watch
from async_processor.redis_io.shared import SharedClients
from async_processor.sensors.promql import PromqlSource
from async_processor.sensors.registry import Sensors
from async_processor.sensors.settings import PrometheusSettings
from async_processor.telemetry.logs import get_logger

_log = get_logger(__name__)

_AsksPrometheus = (
    configured.PrometheusBudgetGate
    | configured.PrometheusQueryGate
    | configured.PrometheusSaturationGate
    | configured.VllmPoolGate
)

SCRAPE_INTERVAL: Final = 1.0
"""Seconds between two looks at a metrics page: a page is cheap, and a second old is old enough."""


class GateContext:
    """What gates share: the clock, Prometheus, Redis, and what several of them look at.

    `redis_url` is the transport's, empty when it has none; `tls` is how its certificates are
    checked, and those of other servers too.
    """

    def __init__(
        self,
        *,
        prometheus: PrometheusSettings | None,
        clock: Clock,
        redis_url: str = "",
        tls: TlsSettings | None = None,
    ) -> None:
        self.prometheus = prometheus
        self.clock = clock
        self.redis_url = redis_url
        self.redis = SharedClients(tls=tls or TlsSettings(), clock=clock)
        self.watch = Watch()
        """The side tasks of gates."""
        self.quotas = Books(self.redis, clock=clock, watch=self.watch)

    async def run(self) -> None:
        """Run until cancelled; raises SideTaskDied when a gate's side task does."""
        raise await self.watch.failure()

    @cached_property
    def sensors(self) -> Sensors:
        """Starts and stops with the process; its `run` says when a sensor dies."""
        return Sensors(self.clock)


def build_gate(settings: configured.GateSettings, context: GateContext, *, workers: int) -> Gate:
    """The gate of a queue or a pool; `workers` is the size of the pool that its budget is of.

    Raises:
        ConfigurationError: a gate over Prometheus without a Prometheus.
    """
    match settings:
        case configured.ConstantGate():
            return ConstantGate()
        case configured.LocalMaxConcurrencyGate(limit=limit, gating_mode=mode):
            return ConcurrencyGate(limit, blocking=mode is configured.GatingMode.BLOCKING)
        case configured.EndpointScrapeGate():
            return _endpoint_scrape(settings, context, workers)
        case configured.VllmPoolGate():
            return _vllm_pool(settings, context, workers)
        case configured.PrometheusQueryGate():
            rule = BudgetRule(fallback=settings.fallback)
            return _over_prometheus(settings, settings.query, rule, context, workers)
        case configured.PrometheusSaturationGate():
            query, rule = saturation.query(settings), saturation.rule(settings)
            return _over_prometheus(settings, query, rule, context, workers)
        case configured.PrometheusBudgetGate():
            return _prometheus_budget(settings, context, workers)
        case configured.RedisQuotaGate():
            return _redis_quota(settings, context)
        case configured.CompositeGate(gates=gates):
            return Chain([build_gate(gate, context, workers=workers) for gate in gates])
        case configured.WaitOnRefuseGate(gate=gate):
            return Patience(build_gate(gate, context, workers=workers))
        case configured.TierPriorityAdmissionGate(saturation_gate_params=gate):
            inner = build_gate(gate, context, workers=workers)
            return TierGate(inner, tier_label=settings.tier_label)


def _endpoint_scrape(
    settings: configured.EndpointScrapeGate, context: GateContext, workers: int
) -> Gate:
    source = scraped.source(settings, context.sensors.http)
    return SensorGate(
        settings.type,
        context.sensors.polling(source, SCRAPE_INTERVAL),
        scraped.rule(settings),
        workers=workers,
        clock=context.clock,
    )


def _vllm_pool(settings: configured.VllmPoolGate, context: GateContext, workers: int) -> Gate:
    rule = vllm.rule(settings)
    if settings.selector:
        return _over_prometheus(settings, vllm.query(settings), rule, context, workers)
    sensor = context.sensors.polling(vllm.source(settings, context.sensors.http), SCRAPE_INTERVAL)
    return SensorGate(settings.type, sensor, rule, workers=workers, clock=context.clock)


def _prometheus_budget(
    settings: configured.PrometheusBudgetGate, context: GateContext, workers: int
) -> Gate:
    query, rule = pool_budget.query(settings), pool_budget.rule(settings)
    gate = _over_prometheus(settings, query, rule, context, workers)
    _log.info(
        "prometheus_budget_gate",
        pool=settings.pool,
        closes_at_requests_per_ready_pod=pool_budget.closing_point(settings),
        query=query,
    )
    return gate


def _redis_quota(settings: configured.RedisQuotaGate, context: GateContext) -> Gate:
    return QuotaGate(
        context.quotas.book(_redis_url(settings, context), settings),
        Tenants(settings.attribute, default=settings.limit, limits=settings.limits),
        name=keys_of(settings).group,
        blocking=settings.gating_mode is configured.GatingMode.BLOCKING,
        missing=settings.missing_attribute,
        clock=context.clock,
        watch=context.watch,
    )


def _redis_url(settings: configured.RedisQuotaGate, context: GateContext) -> str:
    url = settings.redis_url(context.redis_url)
    if not url:
        message = f"is missing: {settings.type} needs a Redis, and the transport has none"
        raise ConfigurationError([Problem(path="gate.url", message=message)])
    return url


def _over_prometheus(
    settings: _AsksPrometheus,
    query: str,
    rule: BudgetRule,
    context: GateContext,
    workers: int,
) -> Gate:
    prometheus = _prometheus(settings.type, context)
    source = PromqlSource(url=prometheus.url, query=query, client=context.sensors.http)
    return SensorGate(
        settings.type,
        context.sensors.polling(source, prometheus.cache_ttl),
        rule,
        workers=workers,
        clock=context.clock,
        pool="" if isinstance(settings, configured.VllmPoolGate) else settings.pool,
    )


def _prometheus(gate_type: str, context: GateContext) -> PrometheusSettings:
    if context.prometheus is None:
        message = f"is missing, and a gate of type {gate_type!r} needs it"
        raise ConfigurationError([Problem(path="prometheus.url", message=message)])
    return context.prometheus
