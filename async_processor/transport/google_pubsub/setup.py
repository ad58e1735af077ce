"""What Pub/Sub needs for a configuration: topics and subscriptions with the recommended settings.

Exactly-once delivery, an ack deadline of one lease, a short pause before what was given back comes
again, and a dead-letter policy that counts deliveries but leaves it to the processor to answer
what kills its process. Nothing that is there already is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

import msgspec

from async_processor.errors import ConfigurationError, Problem
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.errors import Exists
from async_processor.google_io.values import NewSubscription
from async_processor.transport.settings import PubSubSettings
from async_processor.wire import pubsub_names

BACKOFF: Final = (1.0, 60.0)
"""Seconds before a message that was given back comes again: the shortest and the longest."""

MORE_ATTEMPTS: Final = 5
"""Deliveries that the dead-letter policy allows beyond `max_deliveries`."""

READING: Final = 60
"""Seconds that a reader of results and dead letters has for each."""

_SUFFIXES: Final = ("-subscription", "-sub")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, or a subscription with its settings, that has to be there."""

    topic: str = ""
    subscription: NewSubscription | None = None

    def __str__(self) -> str:
        if self.subscription is None:
            return f"topic {self.topic}"
        return f"subscription {self.subscription.name}: {_settings(self.subscription)}"


def steps(settings: PubSubSettings, topics: Mapping[str, str]) -> list[Step]:
    """In the order in which they can be done; `topics` are topics by subscription, "" if not given.

    Raises ConfigurationError for a subscription whose topic cannot be told.
    """
    found: dict[str, Step] = {}
    for index, (name, topic) in enumerate(topics.items()):
        request_topic = topic or _derived(name, f"transport.topics[{index}].topic_id")
        for step in _for_requests(settings, name, request_topic):
            found.setdefault(str(step), step)
    for step in _read(settings.result_topic_id, settings.project_id):
        found.setdefault(str(step), step)
    return list(found.values())


def _for_requests(settings: PubSubSettings, name: str, topic: str) -> Iterator[Step]:
    project = settings.project_id
    dead_letters = settings.dead_letter_topic_id or f"{pubsub_names.short(topic)}-dead-letters"
    yield Step(topic=pubsub_names.topic(topic, project))
    yield from _read(dead_letters, project)
    yield Step(
        subscription=NewSubscription(
            name=pubsub_names.subscription(name, project),
            topic=pubsub_names.topic(topic, project),
            ack_deadline=ceil(settings.lease_ttl),
            exactly_once=True,
            backoff=BACKOFF,
            dead_letter_topic=pubsub_names.topic(dead_letters, project),
            max_delivery_attempts=min(settings.max_deliveries + MORE_ATTEMPTS, 100),
        )
    )


def _read(topic: str, project: str) -> Iterator[Step]:
    """A topic and somebody who keeps what is published there."""
    full_name = pubsub_names.topic(topic, project)
    yield Step(topic=full_name)
    name = pubsub_names.subscription(f"{pubsub_names.short(topic)}-sub", project)
    yield Step(subscription=NewSubscription(name=name, topic=full_name, ack_deadline=READING))


def _derived(name: str, path: str) -> str:
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return pubsub_names.short(name.removesuffix(suffix))
    message = f"is required: which topic does {name!r} subscribe to?"
    raise ConfigurationError([Problem(path=path, message=message)])


def _settings(wanted: NewSubscription) -> str:
    words = [f"of {pubsub_names.short(wanted.topic)}", f"ack deadline {wanted.ack_deadline}s"]
    if wanted.exactly_once:
        words.append("exactly-once delivery")
    if wanted.backoff:
        shortest, longest = wanted.backoff
        words.append(f"retry after {shortest:g}s to {longest:g}s")
    if wanted.dead_letter_topic:
        dead_letters = pubsub_names.short(wanted.dead_letter_topic)
        words.append(f"dead letters to {dead_letters} after {wanted.max_delivery_attempts}")
    return ", ".join(words)


async def do(step: Step, client: PubSubClient) -> bool:
    """Create what is not there; returns whether it was not. Raises as `PubSubClient`."""
    try:
        if step.subscription is None:
            await client.create_topic(step.topic)
        else:
            await client.create_subscription(step.subscription)
    except Exists:
        return False
    return True


async def differences(step: Step, client: PubSubClient) -> list[str]:
    """How a subscription that is there differs from what is recommended."""
    wanted = step.subscription
    if wanted is None:
        return []
    facts = await client.subscription(wanted.name)
    pairs = {
        "topic": (facts.topic, wanted.topic),
        "ack deadline": (facts.ack_deadline, wanted.ack_deadline),
        "exactly-once delivery": (facts.exactly_once, wanted.exactly_once),
        "dead-letter topic": (facts.dead_letter_topic, wanted.dead_letter_topic),
        "delivery attempts": (facts.max_delivery_attempts, wanted.max_delivery_attempts),
    }
    return [
        f"{what} is {found}, recommended {better}"
        for what, (found, better) in pairs.items()
        if found != better
    ]
