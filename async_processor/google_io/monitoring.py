"""How much waits in a subscription: only Cloud Monitoring knows, a minute or more late."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec
from google.auth import default as default_credentials
from grpc import aio

from async_processor.errors import BacklogUnknown
from async_processor.google_io.errors import border
from async_processor.wire import pubsub_names

_TYPE: Final = "pubsub.googleapis.com/subscription/"
_UNDELIVERED: Final = "num_undelivered_messages"
_OLDEST: Final = "oldest_unacked_message_age"
_WINDOW: Final = 600
"""Seconds that are looked back for the last sample; there is one a minute, late."""
_TIMEOUT: Final = 10.0
_SCOPES: Final = ("https://www.googleapis.com/auth/monitoring.read",)


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that nobody has acknowledged, running ones included, and the age of the oldest in
    seconds."""

    messages: int
    oldest_age: float


class Monitor:
    """Opened with the first question. `endpoint` stands for Google's in tests."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = endpoint
        self._client: Any = None

    async def depth(self, subscription: str) -> Depth:
        """Of a subscription, by its full name; raises BacklogUnknown, or as `border` does."""
        if self._client is None:
            self._client = await self._open()
        messages, age = await asyncio.gather(
            self._last(subscription, _UNDELIVERED), self._last(subscription, _OLDEST)
        )
        return Depth(messages=int(messages), oldest_age=float(age))

    async def _last(self, subscription: str, metric: str) -> float:
        monitoring = _library()
        now = int(time.time())
        request = monitoring.ListTimeSeriesRequest(
            name=f"projects/{pubsub_names.project_of(subscription)}",
            filter=(
                f'metric.type="{_TYPE}{metric}" AND '
                f'resource.labels.subscription_id="{pubsub_names.short(subscription)}"'
            ),
            interval={"start_time": {"seconds": now - _WINDOW}, "end_time": {"seconds": now}},
            view=monitoring.ListTimeSeriesRequest.TimeSeriesView.FULL,
        )
        with border(f"backlog of {subscription}"):
            answer = await self._client.list_time_series(request, retry=None, timeout=_TIMEOUT)
            series = [one async for one in answer]
        if not series or not series[0].points:
            raise BacklogUnknown(f"Cloud Monitoring has no sample of {subscription} yet")
        return float(series[0].points[0].value.int64_value)

    async def _open(self) -> Any:
        monitoring = _library()
        transport = monitoring.MetricServiceAsyncClient.get_transport_class("grpc_asyncio")
        if self._endpoint:
            channel = aio.insecure_channel(self._endpoint)
            return monitoring.MetricServiceAsyncClient(transport=transport(channel=channel))
        with border("Google credentials"):
            credentials, _ = await asyncio.to_thread(default_credentials, scopes=_SCOPES)
        return monitoring.MetricServiceAsyncClient(transport=transport(credentials=credentials))

    async def close(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        if client is not None:
            await client.transport.close()


def _library() -> Any:
    try:
        from google.cloud import monitoring_v3  # noqa: PLC0415 - an extra of its own
    except ImportError:
        raise BacklogUnknown(
            "the backlog needs the extra: pip install 'async-processor[pubsub-monitoring]'"
        ) from None
    return monitoring_v3
