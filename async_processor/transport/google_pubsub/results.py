"""Puts results and dead letters on their topics, and returns when they stand there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.errors import Invalid
from async_processor.google_io.publisher import LARGEST_MESSAGE, Publisher
from async_processor.google_io.values import Message
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Bury, Delivery, Post
from async_processor.transport.google_pubsub import marks
from async_processor.transport.google_pubsub.leases import Lease
from async_processor.wire import pubsub_names as names
from async_processor.wire import result
from async_processor.wire.result import ErrorCode, Result, error_payload

_FOR_ATTRIBUTES: Final = 8 * 1024
"""Bytes."""
_LARGEST: Final = LARGEST_MESSAGE - _FOR_ATTRIBUTES

_log = get_logger(__name__)


class Results:
    """`default` and `dead_letters` are topics; where the latter is "", dead letters go where their
    subscription's dead-letter policy says.

    `requests` are the topics that requests come from: a result published there would come back as
    a request.
    """

    def __init__(
        self, publisher: Publisher, project_id: str, *, default: str, dead_letters: str
    ) -> None:
        self._publisher = publisher
        self._project_id = project_id
        self._default = names.topic(default, project_id)
        self._dead_letters = dead_letters and names.topic(dead_letters, project_id)
        self.requests: Collection[str] = ()
        self.refusal = ""
        """Why the default topic refused its last result, "" when it did not."""

    async def post(self, post: Post) -> None:
        """Publish a result where its message or the configuration wants it.

        A topic that a message names and that cannot take it is replaced by the default. Raises
        BrokerUnavailable, also when the default topic refuses: it may be there again later.
        """
        message = _message(post.result)
        topic = names.topic(post.result_queue, self._project_id)
        if topic != self._default and topic not in self.requests:
            try:
                await self._publisher.publish(topic, message)
            except BrokerRefused as error:
                _log.warning("result_topic_refused", topic=topic, error=str(error))
            else:
                return
        try:
            await self._publisher.publish(self._default, message)
        except BrokerRefused as error:
            self.refusal = str(error)
            raise BrokerUnavailable(self.refusal) from error
        self.refusal = ""

    async def bury(self, lease: Lease, delivery: Delivery, bury: Bury, now: float) -> None:
        """Publish a message that nobody could process, as it came, with the reason beside it.

        Where there is no topic for it, or Pub/Sub takes no such message, the log has to do.

        Raises:
            BrokerUnavailable: the service is away.
            BrokerRefused: the topic takes nothing; it may be there again later.
        """
        topic = self._dead_letters or lease.subscription.dead_letter_topic
        if not topic:
            _log.error("no_dead_letter_topic", queue_name=delivery.queue_name, reason=bury.reason)
            return
        about = _about(delivery, bury, now)
        senders = marks.senders(lease.received.attributes)
        # The sender's attributes may leave no room for ours.
        for attributes in ({**senders, **about}, about):
            try:
                await self._publisher.publish(
                    topic, Message(data=delivery.body, attributes=attributes)
                )
            except Invalid as error:
                _log.error("dead_letter_refused", topic=topic, reason=bury.reason, error=str(error))
            else:
                return


def _message(outcome: Result) -> Message:
    body = result.encode(outcome)
    if len(body) > _LARGEST:
        outcome = _too_large(outcome, len(body))
        body = result.encode(outcome)
    return Message(data=body, attributes=marks.of_result(outcome))


def _too_large(outcome: Result, size: int) -> Result:
    message = f"the result of {size} bytes is larger than Pub/Sub takes ({_LARGEST} bytes)"
    return msgspec.structs.replace(
        outcome,
        status_code=None,
        payload=error_payload(message),
        error_code=ErrorCode.INFERENCE_ERROR,
        error_message=message,
        metadata={},
    )


def _about(delivery: Delivery, bury: Bury, now: float) -> Mapping[str, str]:
    return {
        "reason": marks.cut(bury.reason),
        "queue_name": marks.cut(delivery.queue_name),
        "buried_at": f"{now:.3f}",
        "deliveries": str(delivery.deliveries),
    }
