"""The quotas of this process: gates with the same quota share one count."""

from __future__ import annotations

from async_processor.admission.quota.book import Book
from async_processor.admission.quota.slots import Slots
from async_processor.admission.quota.starts import Starts
from async_processor.admission.settings import QuotaMode, RedisQuotaGate
from async_processor.clock import Clock
from async_processor.lifecycle import Watch
from async_processor.redis_io.keys import QuotaKeys, quota_keys
from async_processor.redis_io.shared import SharedClients


class Books:
    """A service that hands out counts and stops them.

    A gate starts the count it asks and leaves the stopping to `stop`, since it cannot know whether
    it was the last to ask.
    """

    def __init__(self, clients: SharedClients, *, clock: Clock, watch: Watch) -> None:
        self._clients = clients
        self._clock = clock
        self._watch = watch
        self._books: dict[tuple[str, str, float], Book] = {}

    def book(self, url: str, settings: RedisQuotaGate) -> Book:
        """The count of a quota. Raises ConfigurationError for a URL that cannot be used."""
        keys = keys_of(settings)
        key = (url, keys.group, settings.window)
        if key not in self._books:
            self._books[key] = self._make(url, keys, settings)
        return self._books[key]

    def _make(self, url: str, keys: QuotaKeys, settings: RedisQuotaGate) -> Book:
        client, window = self._clients.at(url), settings.window
        if settings.mode is QuotaMode.CONCURRENCY:
            return Slots(client, keys, life=window, clock=self._clock, watch=self._watch)
        return Starts(client, keys, window=window, clock=self._clock, watch=self._watch)

    async def start(self) -> None:
        """Nothing to start: a gate starts its own."""

    async def stop(self) -> None:
        for book in self._books.values():
            await book.stop()


def keys_of(settings: RedisQuotaGate) -> QuotaKeys:
    """Slots of every life count together; starts are logged for each window by itself."""
    if settings.mode is QuotaMode.CONCURRENCY:
        return quota_keys(settings.prefix, settings.mode.value, settings.attribute)
    window = f"{settings.window:g}s"
    return quota_keys(settings.prefix, settings.mode.value, settings.attribute, window)
