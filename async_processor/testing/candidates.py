"""Requests as gates see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_processor.admission.base import Candidate, Classification
from async_processor.testing.messages import message
from async_processor.wire.envelope import read


def candidate(
    request_id: str = "r-1",
    *,
    labels: Mapping[str, str] | None = None,
    classification: Classification = Classification.NONE,
    **fields: Any,
) -> Candidate:
    """A candidate; the fields are those of `messages.message`."""
    return Candidate(
        envelope=read(message(request_id, **fields)),
        labels=labels or {},
        classification=classification,
    )


CANDIDATE: Final = candidate()
"""One that nothing is special about."""
