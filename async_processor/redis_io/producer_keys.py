"""Keys that producers and readers of results keep for themselves, beside those of the contract."""

from __future__ import annotations

from typing import Final

from async_processor.wire.names import private_prefix

PAYLOAD_GRACE_S: Final = 600
"""Seconds that a stored payload outlives its request's deadline."""


def sequence_key(queue_name: str, deadline: int) -> str:
    """Counts the requests of one deadline (whole Unix seconds); the contract names it."""
    return f"request-seq:{queue_name}:{deadline}"


def receipt_key(queue_name: str, receipt: str) -> str:
    """Says that a chunk was enqueued, until its producer has heard so."""
    return f"{private_prefix(queue_name)}:receipt:{receipt}"


def readers_key(result_queue: str) -> str:
    """The readers of a result queue, by the end of their leases."""
    return f"{private_prefix(result_queue)}:readers"


def taken_key(result_queue: str, reader: str) -> str:
    """The results in one reader's keeping."""
    return f"{private_prefix(result_queue)}:taken:{reader}"
