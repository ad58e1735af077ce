"""What a producer hears when replicas of the broker do not have its requests in time."""

from __future__ import annotations

from collections.abc import Sequence

from async_processor.errors import BrokerUnavailable
from async_processor.producer.submission import Handle


class Unconfirmed(BrokerUnavailable):
    """Requests are queued on the broker's master, and its replicas have not confirmed them.

    They run, unless a failover to such a replica takes them back; `handles` are theirs, good for
    waiting and cancelling. Submitting them anew makes other requests with results of their own.
    """

    def __init__(self, handles: Sequence[Handle]) -> None:
        super().__init__(
            f"{len(handles)} requests are queued, but not enough replicas of the broker have them:"
            " a failover may lose them"
        )
        self.handles = tuple(handles)
