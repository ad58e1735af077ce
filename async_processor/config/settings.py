"""The whole configuration: one frozen object, named as the YAML file names it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field

from async_processor.dispatch.settings import (
    MergeSettings,
    PoolSettings,
    QueueSettings,
    RandomRobinPolicy,
    TopicSettings,
)
from async_processor.fields import (
    BindAddress,
    ByteSize,
    Duration,
    Interval,
    Port,
    Processes,
    Secret,
    Section,
)
from async_processor.inference.settings import InferenceSettings
from async_processor.sensors.settings import PrometheusSettings
from async_processor.settlement.settings import RetrySettings
from async_processor.transforms.settings import TransformSettings
from async_processor.transport.settings import MemorySettings, PubSubSettings, RedisSettings


class RedisTransport(RedisSettings):
    """A Redis broker and the queues behind it."""

    planned: ClassVar[frozenset[str]] = frozenset({"mode", "addrs", "master_name"})

    queues: Annotated[tuple[QueueSettings, ...], Field(min_length=1)]
    """The request queues."""


class MemoryTransport(MemorySettings):
    """A broker inside the process and the queues behind it."""

    queues: Annotated[tuple[QueueSettings, ...], Field(min_length=1)]
    """The request queues."""


class PubSubTransport(PubSubSettings):
    """Google Pub/Sub and the subscriptions that requests come from."""

    topics: Annotated[tuple[TopicSettings, ...], Field(min_length=1)]
    """The request queues: a subscription each."""

    @property
    def queues(self) -> tuple[QueueSettings, ...]:
        """The request queues."""
        return self.topics


TransportSettings = Annotated[
    RedisTransport | PubSubTransport | MemoryTransport, Field(discriminator="type")
]


class ServerSettings(Section):
    """The HTTP ports for probes and metrics."""

    bind: BindAddress = "0.0.0.0"  # noqa: S104 - a probe comes from outside the container
    """The address that both ports listen on."""
    health_port: Port = 8081
    """/healthz, /readyz and /status."""
    metrics_port: Port = 9090
    """/metrics."""
    bearer_token: Secret = ""
    """Required by /metrics and /status; empty: they are open."""


LARGEST_ANSWER: Final = 255 * 2**20
"""In bytes; in a result, as a JSON string, it may take twice as much."""


def _postable(size: int) -> int:
    if size > LARGEST_ANSWER:
        raise ValueError(
            "must be 255MiB or less: a result may take twice as much, and 512MiB is all that a"
            " value of Redis can hold"
        )
    return size


class LimitSettings(Section):
    """Sizes in bytes that no request may exceed."""

    payload_bytes: ByteSize = 16 * 2**20
    """One request's payload; a larger one is an INVALID_REQUEST."""
    answer_bytes: Annotated[ByteSize, AfterValidator(_postable)] = 64 * 2**20
    """One answer's body; a larger one, or one of twice the size as JSON, is an INFERENCE_ERROR."""
    header_bytes: ByteSize = 32 * 2**10
    """All headers of one call."""
    claim_bytes: ByteSize = 16 * 2**20
    """All messages of one claim."""


class Settings(Section):
    """Everything that `run` needs to know."""

    transport: TransportSettings
    """The broker and its queues."""
    worker_pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1)] = (PoolSettings(),)
    """Who works on the queues."""
    merge_policy: MergeSettings = RandomRobinPolicy()
    """The order in which queues of one pool get its slots."""
    prometheus: PrometheusSettings | None = None
    """The server that prometheus gates ask; no default."""
    inference: InferenceSettings = InferenceSettings()
    """How the inference gateway is called."""
    transforms: TransformSettings = TransformSettings()
    """How bodies are rewritten, on the way out and back."""
    retry: RetrySettings = RetrySettings()
    """When failed attempts are repeated."""
    processes: Processes = 1
    """Processes that divide the workers among them; auto: one for each core that may be used."""
    server: ServerSettings = ServerSettings()
    """The HTTP ports for probes and metrics."""
    limits: LimitSettings = LimitSettings()
    """Sizes in bytes that no request may exceed."""
    drain_timeout: Duration = 120.0
    """Seconds that running calls may take to end after SIGTERM."""
    gate_wait_timeout: Interval = 300.0
    """Seconds after which a request parked at a gate goes back to the broker, uncounted."""

    @property
    def queues(self) -> tuple[QueueSettings, ...]:
        """The request queues of the transport."""
        return self.transport.queues
