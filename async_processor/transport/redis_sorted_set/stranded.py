"""Letters that the dead-letter queue did not take: brought there once it takes them."""

from __future__ import annotations

from typing import Final

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.scripts import UNSTRAND
from async_processor.telemetry.logs import get_logger
from async_processor.transport.redis_sorted_set.link import Link

_MOVED_AT_ONCE: Final = 20

_log = get_logger(__name__)


async def bring_in(link: Link, queue_name: str) -> None:
    """Move a queue's stranded letters to the dead letters.

    What hinders it is worth a warning, and never another duty's end.
    """
    keys = (queue_keys(queue_name).stranded, link.settings.dead_letter_queue_name)
    try:
        if await link.client.execute("LLEN", keys[0]):
            count = await _move(link, keys)
            _log.warning("stranded_letters_buried", queue_name=queue_name, count=count)
    except (BrokerRefused, BrokerUnavailable) as error:
        _log.warning("letters_stranded", queue_name=queue_name, error=str(error))


async def _move(link: Link, keys: tuple[str, str]) -> int:
    total = 0
    while True:
        moved: int = await UNSTRAND.run(link.client, keys, (_MOVED_AT_ONCE,))
        total += moved
        if moved < _MOVED_AT_ONCE:
            return total
