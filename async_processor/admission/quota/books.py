"""The quotas of this process: gates with the same quota share one count."""

from __future__ import annotations

from weakref import WeakValueDictionary

from async_processor.admission.quota.book import Book
from async_processor.admission.quota.slots import Slots
from async_processor.admission.quota.starts import Starts
from async_processor.admission.settings import QuotaMode, RedisQuotaGate
from async_processor.clock import Clock
from async_processor.lifecycle import Watch
from async_processor.redis_io.keys import QuotaKeys, quota_keys
from async_processor.redis_io.shared import SharedClients


class Books:
    """Hands out counts; one is forgotten when nobody has it any more, nor a slot of it."""

    def __init__(self, clients: SharedClients, *, clock: Clock, watch: Watch) -> None:
        self._clients = clients
        self._clock = clock
        self._watch = watch
        self._books = WeakValueDictionary[tuple[str, str, float], Book]()

    def book(self, url: str, settings: RedisQuotaGate) -> Book:
        """The count of a quota. Raises ConfigurationError for a URL that cannot be used."""
        keys = keys_of(settings)
        key = (url, keys.group, settings.window)
        book = self._books.get(key)
        if book is None:
            book = self._books[key] = self._make(url, keys, settings)
        return book

    def _make(self, url: str, keys: QuotaKeys, settings: RedisQuotaGate) -> Book:
        client, window = self._clients.at(url), settings.window
        if settings.mode is QuotaMode.CONCURRENCY:
            return Slots(client, keys, life=window, clock=self._clock, watch=self._watch)
        return Starts(client, keys, window=window, clock=self._clock, watch=self._watch)


def keys_of(settings: RedisQuotaGate) -> QuotaKeys:
    """Slots of every life count together; starts are logged for each window by itself."""
    if settings.mode is QuotaMode.CONCURRENCY:
        return quota_keys(settings.prefix, settings.mode.value, settings.attribute)
    window = f"{settings.window:g}s"
    return quota_keys(settings.prefix, settings.mode.value, settings.attribute, window)
