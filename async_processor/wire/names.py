"""Names that producers and the processor must agree on: keys of a request, its mailbox, and
where a result may not go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

KEY_BEGINNINGS: Final = ("quota:", "request-")
"""What keys of tenants and of requests begin with; a result pushed there would break them."""

_PRIVATE: Final = ("{", *KEY_BEGINNINGS)


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message may not send its result: a result pushed there would break what it holds."""

    names: frozenset[str] = frozenset()
    beginnings: tuple[str, ...] = _PRIVATE


def reserved(queue_names: Iterable[str]) -> Reserved:
    """What belongs to these request, retry and dead-letter queues, and to the processor."""
    queues = frozenset(queue_names)
    foreign = {key for name in queues for key in go_claim_keys(name)}
    own = {f"{private_prefix(name)}:" for name in queues}
    tagged_inside = sorted(prefix for prefix in own if not prefix.startswith(_PRIVATE))
    return Reserved(names=queues | foreign, beginnings=(*_PRIVATE, *tagged_inside))


def private_prefix(queue_name: str) -> str:
    """What the keys begin with (a colon follows) that are kept for a queue, in its hash slot.

    Only a name with a closing brace and no hash tag cannot be matched so.
    """
    return queue_name if slot_tag(queue_name) != queue_name else f"{{{queue_name}}}"


def slot_tag(key: str) -> str:
    """What Redis Cluster computes a key's slot from: its hash tag, else all of it."""
    start = key.find("{")
    end = key.find("}", start + 1)
    return key[start + 1 : end] if 0 <= start < end - 1 else key


def go_claim_keys(prefix: str) -> tuple[str, str, str]:
    """What the Go implementation keeps of the claims of a queue: bodies, owners, leases."""
    return f"{prefix}:claimed", f"{prefix}:claim-owners", f"{prefix}:claims-idx"


def active_key(request_id: str) -> str:
    """Holds the token of the generation of this id that was submitted last."""
    return f"request-active:{request_id}"


def cancel_key(request_id: str) -> str:
    """Holds the token of the generation that its sender has cancelled."""
    return f"request-cancel:{request_id}"


def payload_key(request_id: str, request_token: str) -> str:
    """Holds a payload that is stored apart from its message."""
    return f"request-payload:{request_id}:{request_token}"


def mailbox(request_id: str, request_token: str) -> str:
    """The result list of one request alone."""
    return f"request-result:{request_id}:{request_token}"


def is_mailbox(name: str, request_id: str, request_token: str) -> bool:
    """Whether a result queue is this very request's mailbox (nobody else's counts)."""
    return bool(request_id and request_token) and name == mailbox(request_id, request_token)


def result_queue_fault(name: str, kept: Reserved) -> str:
    """Why a message may not send its result there; empty when it may.

    The request's own mailbox is allowed before this is asked.
    """
    if name in kept.names:
        return "result_queue_name: names a request, retry or dead-letter queue, or a key of one"
    if name.startswith(kept.beginnings):
        beginnings = ", ".join(kept.beginnings)
        return f"result_queue_name: must not begin with any of {beginnings}"
    return ""
