"""Messages as producers write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DEADLINE = 4_102_444_800
"""The year 2100, for tests that do not wait."""


def message(
    request_id: str,
    *,
    deadline: float = DEADLINE,
    token: str = "",
    seq: int = 0,
    internal: Mapping[str, Any] | None = None,
    **data: Any,
) -> bytes:
    """An envelope; `internal` and `data` add fields or replace them. Deadline in Unix seconds."""
    routing: dict[str, Any] = {"request_token": token, "enqueue_seq": seq, **(internal or {})}
    request = {"id": request_id, "deadline": deadline, "payload": {"prompt": "hi"}, **data}
    return json.dumps({"internal": routing, "request_kind": "redis", "data": request}).encode()


def bare_message(request_id: str, *, deadline: float = DEADLINE, **data: Any) -> bytes:
    """The bare request, as a person would type it into redis-cli."""
    request = {"id": request_id, "deadline": deadline, "payload": {"prompt": "hi"}, **data}
    return json.dumps(request).encode()
