"""What can go wrong for a producer, besides the broker."""

from __future__ import annotations

from async_processor.errors import AsyncProcessorError


class InvalidSubmission(AsyncProcessorError):
    """A request that would never run; `field` says which part of it is wrong, `reason` why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class DeadlinePassed(InvalidSubmission):
    """The deadline has passed by the broker's clock, so nothing was submitted."""


class NotSupported(AsyncProcessorError):
    """The broker has no way to do that."""


class NoMailbox(AsyncProcessorError):
    """The request was submitted without a mailbox; its result comes on the shared result queue."""
