"""Looks at the subscriptions before work begins: what cannot work is refused, what is weaker than
it could be is told to the log."""

from __future__ import annotations

from typing import Final

from async_processor.errors import BrokerRefused
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.errors import Denied, Missing
from async_processor.google_io.values import SubscriptionFacts
from async_processor.telemetry.logs import get_logger
from async_processor.transport.google_pubsub.subscription import DELETED, Subscription
from async_processor.transport.settings import PubSubSettings
from async_processor.wire import pubsub_names

_SETUP: Final = "async-processor pubsub setup --config FILE creates it"

_log = get_logger(__name__)


async def look_at(
    client: PubSubClient, subscription: Subscription, settings: PubSubSettings
) -> None:
    """Learn how a subscription is set up, as far as this identity may see it.

    Raises:
        BrokerUnavailable: it cannot be seen now.
        BrokerRefused: messages could not be pulled from it, their copies would not come to it, or
            their results would.
    """
    try:
        facts = await client.subscription(subscription.full_name)
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
    _refuse(subscription, facts, settings)
    subscription.learn(facts)
    for weakness in _weaknesses(facts, settings):
        _log.warning("subscription_weak", subscription=subscription.full_name, weakness=weakness)


def _unseen(subscription: Subscription) -> str:
    if subscription.topic:
        return (
            "its leases count as 10 s and its deliveries as not exactly-once, and retries are lost "
            "if topic_id is not its topic"
        )
    return (
        "retries are delivered again uncounted, and nobody counts lost leases: grant "
        "pubsub.subscriptions.get (roles/pubsub.viewer), or set topic_id"
    )


def _refuse(subscription: Subscription, facts: SubscriptionFacts, settings: PubSubSettings) -> None:
    name = subscription.full_name
    if facts.pushes:
        raise BrokerRefused(f"{name} pushes its messages; it must be a pull subscription")
    if subscription.topic and facts.topic not in (subscription.topic, DELETED):
        raise BrokerRefused(
            f"topic_id: {subscription.topic} is not the topic of {name}, and retries published "
            f"there would be lost: it must be {facts.topic}, or left out"
        )
    if facts.topic == pubsub_names.topic(settings.result_topic_id, settings.project_id):
        raise BrokerRefused(
            f"{name} delivers what is published to {facts.topic}, the result topic: every result "
            "would come back as a request"
        )


def _weaknesses(facts: SubscriptionFacts, settings: PubSubSettings) -> list[str]:
    found: list[str] = []
    max_deliveries = settings.max_deliveries
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
    if facts.topic == DELETED:
        found.append(
            "its topic is deleted: retries are delivered again uncounted, and nobody counts lost "
            "leases"
        )
    if not (facts.dead_letter_topic or settings.dead_letter_topic_id):
        found.append(
            "without a dead-letter topic what nobody can process is gone: set dead_letter_topic_id"
        )
    return found
