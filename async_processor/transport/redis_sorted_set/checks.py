"""What is found out at start rather than by the first request that suffers from it."""

from __future__ import annotations

from collections.abc import Sequence

from async_processor.errors import BrokerRefused, ConfigurationError, Problem
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.confirming import check_confirming
from async_processor.transport.settings import RedisSettings
from async_processor.wire.names import private_prefix, slot_tag


async def check(client: RedisClient, settings: RedisSettings, queue_names: Sequence[str]) -> None:
    """Raises ConfigurationError with everything that cannot work on this server."""
    check_confirming(client, settings.confirm)
    problems = [
        *(_slot_problems(settings, queue_names) if client.clustered else ()),
        *await _type_problems(client, settings, queue_names),
    ]
    if problems:
        raise ConfigurationError(problems)


def _slot_problems(settings: RedisSettings, queue_names: Sequence[str]) -> list[Problem]:
    """On a cluster one script reaches one slot."""
    unmatched = [name for name in queue_names if slot_tag(private_prefix(name)) != slot_tag(name)]
    if unmatched:
        return [
            Problem(
                path="transport.queues",
                message=f"on Redis Cluster {name} must have a hash tag or no brace, like {{llm}}:x",
            )
            for name in unmatched
        ]
    tags = {slot_tag(name) for name in queue_names}
    if len(tags) > 1:
        return [
            Problem(
                path="transport.queues",
                message="on Redis Cluster the queues must share a hash tag, like {llm}:interactive"
                f" and {{llm}}:batch, not {', '.join(sorted(queue_names))}",
            )
        ]
    return [
        Problem(
            path=f"transport.{field}",
            message=f"on Redis Cluster {name} must carry the tag of the queues: {{{tag}}}:{name}",
        )
        for tag in tags
        for field, name in _shared(settings).items()
        if slot_tag(name) != tag
    ]


async def _type_problems(
    client: RedisClient, settings: RedisSettings, queue_names: Sequence[str]
) -> list[Problem]:
    expected = dict.fromkeys((settings.retry_queue_name, *queue_names), "zset")
    expected |= dict.fromkeys((settings.result_queue_name, settings.dead_letter_queue_name), "list")
    try:
        found = await client.pipeline([("TYPE", name) for name in expected])
    except BrokerRefused:
        return []  # an ACL may forbid to ask; then the first command that suffers will tell
    return [
        Problem(
            path=f"transport: {name}",
            message=f"the key holds a {actual.decode()}, and must be a {wanted} or not exist",
        )
        for (name, wanted), actual in zip(expected.items(), found, strict=True)
        if actual.decode() not in (wanted, "none")
    ]


def _shared(settings: RedisSettings) -> dict[str, str]:
    names = ("result_queue_name", "retry_queue_name", "dead_letter_queue_name")
    return {name: getattr(settings, name) for name in names}
