"""What Cloud Monitoring says of a subscription, from a server that answers like it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.cloud import monitoring_v3
from grpc import aio

from async_processor.errors import BacklogUnknown, BrokerUnavailable
from async_processor.google_io.monitoring import Monitor
from async_processor.testing.clock import ManualClock
from async_processor.transport.google_pubsub.depths import FRESH, Depths

SUBSCRIPTION = "projects/p1/subscriptions/requests-sub"


class Monitoring:
    """Answers each metric by its last word; what it does not know has no samples."""

    def __init__(self, **values: int) -> None:
        self.values = values
        self.asked: list[str] = []
        self.refusal: grpc.StatusCode | None = None

    async def list_time_series(self, request: Any, context: Any) -> Any:
        self.asked.append(request.filter)
        if self.refusal is not None:
            await context.abort(self.refusal, "told to")
        values = [value for name, value in self.values.items() if name in request.filter]
        points = [
            monitoring_v3.Point(value=monitoring_v3.TypedValue(int64_value=value))
            for value in values
        ]
        series = [monitoring_v3.TimeSeries(points=points)] if points else []
        return monitoring_v3.ListTimeSeriesResponse(time_series=series)


@asynccontextmanager
async def monitor(monitoring: Monitoring) -> AsyncIterator[Monitor]:
    server = aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        monitoring.list_time_series,
        request_deserializer=monitoring_v3.ListTimeSeriesRequest.deserialize,
        response_serializer=monitoring_v3.ListTimeSeriesResponse.serialize,
    )
    service = "google.monitoring.v3.MetricService"
    methods = {"ListTimeSeries": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    asked = Monitor(f"127.0.0.1:{port}")
    try:
        yield asked
    finally:
        await asked.close()
        await server.stop(None)


async def test_the_last_sample_of_both_metrics_is_the_backlog_asked_for_now_and_then() -> None:
    clock = ManualClock()
    monitoring = Monitoring(num_undelivered_messages=42, oldest_unacked_message_age=7)
    async with monitor(monitoring) as asked:
        depths = Depths(asked, clock)
        backlog = await depths.read(SUBSCRIPTION)
        assert (backlog.waiting, backlog.oldest_age, backlog.oldest_deadline) == (42, 7.0, None)
        assert all('subscription_id="requests-sub"' in each for each in monitoring.asked)
        monitoring.values["num_undelivered_messages"] = 1
        assert (await depths.read(SUBSCRIPTION)).waiting == 42
        assert len(monitoring.asked) == 2
        await clock.advance(FRESH)
        assert (await depths.read(SUBSCRIPTION)).waiting == 1


@pytest.mark.parametrize("refusal", [None, grpc.StatusCode.PERMISSION_DENIED])
async def test_what_is_not_told_is_unknown(refusal: grpc.StatusCode | None) -> None:
    monitoring = Monitoring()
    monitoring.refusal = refusal
    async with monitor(monitoring) as asked:
        with pytest.raises(BacklogUnknown, match="requests-sub"):
            await Depths(asked, ManualClock()).read(SUBSCRIPTION)


async def test_a_service_that_is_away_is_away() -> None:
    monitoring = Monitoring()
    monitoring.refusal = grpc.StatusCode.UNAVAILABLE
    async with monitor(monitoring) as asked:
        with pytest.raises(BrokerUnavailable) as caught:
            await Depths(asked, ManualClock()).read(SUBSCRIPTION)
    assert not isinstance(caught.value, BacklogUnknown)


async def test_nobody_can_be_asked_on_an_emulator() -> None:
    with pytest.raises(BacklogUnknown, match="emulator"):
        await Depths(None, ManualClock()).read(SUBSCRIPTION)
