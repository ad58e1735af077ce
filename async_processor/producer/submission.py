"""What a caller submits, and what it gets in return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from async_processor.producer.deadline import Deadline
from async_processor.wire.names import is_mailbox

Payload = Mapping[str, Any] | bytes | str
"""A JSON object: as a mapping, or as its text, whose bytes are then sent as they are."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its caller writes it.

    Without an `id` one is made. `created` is a Unix time in seconds, by default the moment of
    submitting. `payload` is the body of the inference call; `endpoint` replaces the queue's path.
    """

    payload: Payload
    deadline: Deadline
    id: str = ""
    created: float | None = None
    model: str = ""
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    endpoint: str = ""


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted request. It can be stored (as JSON) and used by another process later.

    `deadline` is a Unix time in seconds; `result_queue` is empty where the processor's
    configuration decides.
    """

    id: str
    request_token: str
    queue_name: str
    deadline: int
    result_queue: str = ""

    @property
    def has_mailbox(self) -> bool:
        """Whether the result comes on a list of this request alone."""
        return is_mailbox(self.result_queue, self.id, self.request_token)
