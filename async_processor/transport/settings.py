"""What a transport can be told: broker, queue names, leases. Durations are seconds."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]


class _LeasedQueues(BaseModel):
    """What every transport with leases shares.

    A lease lasts `lease_ttl` seconds and is extended every third of it; expired leases are taken
    back every `reclaim_interval` seconds. After `max_deliveries` claims without an outcome a
    request counts as poison. `backlog_poll_interval` 0 turns the backlog metrics off.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    result_queue_name: Name = "result-list"
    retry_queue_name: Name = "retry-sortedset"
    dead_letter_queue_name: Name = "dead-letter-list"
    lease_ttl: PositiveSeconds = 60.0
    reclaim_interval: PositiveSeconds = 5.0
    max_deliveries: int = Field(default=5, ge=1)
    backlog_poll_interval: Seconds = 15.0

    @model_validator(mode="after")
    def _three_queues(self) -> Self:
        names = (self.result_queue_name, self.retry_queue_name, self.dead_letter_queue_name)
        if len(set(names)) < len(names):
            raise ValueError("the result, retry and dead-letter queues must have different names")
        return self


class RedisSettings(_LeasedQueues):
    """A sorted set per queue on Redis or Valkey.

    `url`: redis://, rediss:// (TLS), redis+sentinel://, rediss+sentinel:// or unix://, with user
    and password if need be. `ca_file` replaces the system's authorities, `cert_file` and
    `key_file` identify this client, `tls_insecure` accepts any certificate of the server.
    """

    type: Literal["redis-sortedset"] = "redis-sortedset"
    url: str = Field(default="redis://localhost:6379/0", min_length=1, repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_insecure: bool = False

    @model_validator(mode="after")
    def _whole_identity(self) -> Self:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together: set both or neither")
        return self


class MemorySettings(_LeasedQueues):
    """Queues inside the process: nothing to install, and nothing survives it."""

    type: Literal["memory"] = "memory"


TransportSettings = Annotated[RedisSettings | MemorySettings, Field(discriminator="type")]
