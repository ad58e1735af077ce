"""How often each request was executed: what a test of exactly-once counts with."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Ledger:
    """Counts calls and answers by the request's own id (see `calls.Call.request_id`).

    A call is counted when it reaches a pod, an answer when all its tokens have been made; a
    call whose client went away before, or that met a fault, has none.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.total = 0

    def called(self, request_id: str) -> None:
        self.total += 1
        if request_id:
            self.calls[request_id] += 1

    def answered(self, request_id: str) -> None:
        if request_id:
            self.answers[request_id] += 1

    def repeated(self) -> dict[str, int]:
        """The ids that were called more than once, with their counts."""
        return {request_id: count for request_id, count in self.calls.items() if count > 1}

    def clear(self) -> None:
        self.calls.clear()
        self.answers.clear()
        self.total = 0

    def as_dict(self) -> dict[str, Any]:
        """What `GET /ledger` shows."""
        return {"total": self.total, "calls": dict(self.calls), "answers": dict(self.answers)}
