"""The error of every message that cannot be processed."""

from __future__ import annotations

from collections.abc import Mapping

from async_processor.errors import AsyncProcessorError


class InvalidMessage(AsyncProcessorError):
    """A message that cannot be processed; says which field, and what is allowed.

    `id`, `request_token`, `metadata` and the names of queues are filled as far as they could be
    read, so that the sender still gets a result.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason
        self.id = ""
        self.request_token = ""
        self.result_queue_name = ""
        self.request_queue_name = ""
        self.metadata: Mapping[str, str] = {}


def shown(value: object) -> str:
    """A value as an error may show it: short, and on one line.

    For ids, routing, deadlines and endpoints only: reasons end up in logs, and what stands in the
    payload, the headers or the metadata must not.
    """
    text = ascii(str(value)[:60])
    return text if len(text) <= 60 else text[:57] + "..."
