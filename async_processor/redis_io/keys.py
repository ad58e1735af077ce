"""Every key that the processor keeps in Redis for itself is named here and nowhere else.

Private keys stand in their queue's hash slot: their prefix is the queue's name in braces, or the
name itself if it has a hash tag already. What producers see is named in `wire/names.py`.
"""

from __future__ import annotations

import msgspec

from async_processor.wire.names import go_claim_keys as names_of_go_claims
from async_processor.wire.names import private_prefix


class QueueKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One queue and what is kept for it; the Lua files say what each key holds."""

    queue: str
    claims: str
    leases: str
    deliveries: str
    stranded: str
    lots: str


class GoClaimKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What the Go implementation keeps of the claims of one queue."""

    claimed: str
    owners: str
    index: str


def queue_keys(queue_name: str) -> QueueKeys:
    """The keys of a queue."""
    prefix = private_prefix(queue_name)
    return QueueKeys(
        queue=queue_name,
        claims=f"{prefix}:claims",
        leases=f"{prefix}:leases",
        deliveries=f"{prefix}:deliveries",
        stranded=stranded_key(queue_name),
        lots=f"{prefix}:lots",
    )


def stranded_key(name: str) -> str:
    """Letters of a queue that the dead-letter queue did not take."""
    return f"{private_prefix(name)}:stranded"


def lot_key(queue_name: str, lot: str) -> str:
    """What waits in one lot of a queue."""
    return f"{private_prefix(queue_name)}:lot:{lot}"


def replicas_key(queue_name: str) -> str:
    """The roll of the replicas that work on a queue."""
    return f"{private_prefix(queue_name)}:replicas"


class QuotaKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the tenants of one quota, all of it in one hash slot.

    `group` says which quota it is; `quota:{concurrency:userid}` for example.
    """

    group: str

    @property
    def name(self) -> str:
        """The same for people to read."""
        return self.group.replace("{", "").replace("}", "")

    @property
    def wanted(self) -> str:
        """Tenants that somebody waits for."""
        return f"{self.group}:wanted"

    def slots(self, tenant: str) -> str:
        """The slots of a tenant that are taken."""
        return f"{self.group}:slots:{tenant}"

    def starts(self, tenant: str) -> str:
        """When requests of a tenant were let through lately."""
        return f"{self.group}:starts:{tenant}"

    def charged(self, tenant: str) -> str:
        """Which requests of a tenant have been charged."""
        return f"{self.group}:charged:{tenant}"


def quota_keys(prefix: str, *what: str) -> QuotaKeys:
    """The keys of a quota; `what` tells it from others of the same prefix, which has no brace."""
    return QuotaKeys(group=f"{prefix}{{{':'.join(what)}}}")


def go_claim_keys(queue_name: str, *, clustered: bool) -> GoClaimKeys:
    """Where the Go implementation keeps claims; it tags its keys on a cluster alone."""
    prefix = private_prefix(queue_name) if clustered else queue_name
    claimed, owners, index = names_of_go_claims(prefix)
    return GoClaimKeys(claimed=claimed, owners=owners, index=index)
