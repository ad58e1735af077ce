"""Shows how much of their quotas those tenants use that the quotas name."""

from __future__ import annotations

import asyncio

from async_processor.admission.build import GateContext, quota_book
from async_processor.clock import Clock
from async_processor.daemon.tenants import NamedQuota, named_quotas
from async_processor.daemon.topology import Topology
from async_processor.errors import BrokerUnavailable
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.series import QuotaOwner


class QuotaGauges:
    """Reads the counts at its interval; what cannot be read is not shown, and neither is what is
    gone from the configuration."""

    def __init__(
        self,
        topology: Topology,
        gates: GateContext,
        metrics: Metrics,
        clock: Clock,
        *,
        interval: float,
    ) -> None:
        self._topology = topology
        self._gates = gates
        self._metrics = metrics
        self._clock = clock
        self._interval = interval

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.publish()
            await self._clock.sleep(self._interval)

    async def publish(self) -> None:
        """Publish once."""
        quotas = named_quotas(self._topology.settings, self._gates.redis_url)
        in_use: dict[QuotaOwner, int] = {}
        for found in await asyncio.gather(*map(self._read, quotas)):
            in_use |= found
        limits = {
            (quota.name, tenant): limit
            for quota in quotas
            for tenant, limit in quota.limits.items()
        }
        self._metrics.quotas(in_use=in_use, limits=limits)

    async def _read(self, quota: NamedQuota) -> dict[QuotaOwner, int]:
        tenants = list(quota.limits)
        try:
            used = await quota_book(quota.settings, self._gates).used(tenants)
        except BrokerUnavailable:
            return {}  # the quota's own look at its Redis says so
        return {(quota.name, tenant): count for tenant, count in zip(tenants, used, strict=True)}
