"""Looks at the subscriptions before work begins: what cannot work is refused, what is weaker than
it could be is told to the log."""

from __future__ import annotations

from typing import Final

from async_processor.errors import BrokerRefused
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.errors import Denied, Missing
from async_processor.telemetry.logs import get_logger
from async_processor.transport.google_pubsub.subscription import Subscription

DELETED: Final = "_deleted-topic_"
"""What Pub/Sub calls the topic of a subscription whose topic is gone."""

_SETUP: Final = "async-processor pubsub setup --config FILE creates it"

_log = get_logger(__name__)


async def look_at(
    client: PubSubClient, subscription: Subscription, *, result_topic: str, max_deliveries: int
) -> None:
    """Learn how a subscription is set up, as far as this identity may see it.

    Raises:
        BrokerUnavailable: it cannot be seen now.
        BrokerRefused: messages could not be pulled from it, or their results would come back.
    """
    try:
        subscription.learn(await client.subscription(subscription.full_name))
    except Missing:
        raise BrokerRefused(
            f"the subscription {subscription.full_name} does not exist: {_SETUP}"
        ) from None
    except Denied as error:
        _log.warning(
            "subscription_not_seen",
            subscription=subscription.full_name,
            error=str(error),
            consequence=_unseen(subscription),
        )
        return
    _refuse(subscription, result_topic)
    for weakness in _weaknesses(subscription, max_deliveries):
        _log.warning("subscription_weak", subscription=subscription.full_name, weakness=weakness)


def _unseen(subscription: Subscription) -> str:
    if subscription.topic:
        return "its leases count as 10 s and its deliveries as not exactly-once"
    return (
        "retries are delivered again uncounted: grant pubsub.subscriptions.get (roles/pubsub."
        "viewer), or set topic_id"
    )


def _refuse(subscription: Subscription, result_topic: str) -> None:
    facts, name = subscription.facts, subscription.full_name
    assert facts is not None  # noqa: S101 - just learned
    if facts.pushes:
        raise BrokerRefused(f"{name} pushes its messages; it must be a pull subscription")
    if subscription.topic == result_topic:
        raise BrokerRefused(
            f"{name} delivers what is published to {result_topic}, the result topic: every result "
            "would come back as a request"
        )


def _weaknesses(subscription: Subscription, max_deliveries: int) -> list[str]:
    facts = subscription.facts
    assert facts is not None  # noqa: S101 - just learned
    found = []
    if not facts.exactly_once:
        found.append("without exactly-once delivery a request may run, and be answered, twice")
    if not facts.max_delivery_attempts:
        found.append(
            "without a dead-letter policy nobody counts deliveries: a request that kills its "
            "process does so until its deadline"
        )
    elif facts.max_delivery_attempts <= max_deliveries + 1:
        found.append(
            f"its dead-letter policy takes messages away after {facts.max_delivery_attempts} "
            f"attempts, before max_deliveries ({max_deliveries}) can answer them: set it above "
            f"{max_deliveries + 1}"
        )
    if subscription.topic == DELETED:
        found.append("its topic is deleted: retries are delivered again uncounted")
        subscription.topic = ""
    return found
