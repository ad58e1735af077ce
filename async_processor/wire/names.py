"""Names that producers and the processor must agree on: keys of a request, and its mailbox."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_PRIVATE: Final = ("{", "quota:", "request-")
"""What keys of the processor begin with; a result pushed there would break them."""


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


def result_queue_fault(name: str, reserved: Collection[str]) -> str:
    """Why a message may not send its result there; empty when it may.

    `reserved` are the names of request, retry and dead-letter queues. The request's own mailbox
    is allowed before this is asked.
    """
    if name in reserved:
        return "result_queue_name: names a request, retry or dead-letter queue"
    if name.startswith(_PRIVATE):
        beginnings = ", ".join(_PRIVATE)
        return f"result_queue_name: must not begin with any of {beginnings}"
    return ""
