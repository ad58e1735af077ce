"""Calls of settle.lua for one queue, which go on without the keys that cannot be used.

A message may name a result list that this user has no permission for, or (on a cluster) one in
another slot, and Redis refuses a whole call for one such key. Then it is left out: to settle.lua
it is a place that takes nothing, and the result goes to the next best place. Where the keys of
requests are forbidden, or lie in other slots, they are cleaned up one by one, as far as that goes.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Final

import msgspec

from async_processor.redis_io.client import Argument
from async_processor.redis_io.errors import AccessDenied
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.permissions import forbidden_among, permitted
from async_processor.redis_io.scripts import FORGET, SETTLE
from async_processor.telemetry.logs import get_logger
from async_processor.transport.redis_sorted_set.entries import Entry
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.transport.settings import RedisSettings
from async_processor.wire.names import slot_tag

_REQUIRED: Final = 4
"""The first keys of settle.lua, without which nothing is settled."""
_NOWHERE: Final = 2
"""Where settle.lua finds the claims among its keys, which stand for a place that takes nothing."""
_RESULTS: Final = 8
_APART_SECONDS: Final = 60.0
"""How long requests' keys are left out of the calls after they were found forbidden."""

_log = get_logger(__name__)


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What settle.lua says of each entry, and whether replicas have what it wrote as well."""

    each: Sequence[int | bytes]
    confirmed: bool


class SettleCalls:
    """Runs settle.lua for one queue."""

    def __init__(self, link: Link, queue_name: str) -> None:
        self._link = link
        self._queue_name = queue_name
        self._apart_until = float("-inf")

    @property
    def apart(self) -> bool:
        """Whether requests' keys are left out of the calls: `clean_up` is to follow."""
        return self._link.client.clustered or self._link.clock.monotonic() < self._apart_until

    async def run(self, entries: Sequence[Entry]) -> Answers:
        """An answer for each entry. Raises as `RedisClient.execute`."""
        call = self._call(entries)
        try:
            return await self._run(call)
        except AccessDenied:
            forbidden = await self._forbidden(call)
            if forbidden is None:
                raise
            return await self._run(self._call(entries, forbidden))

    async def clean_up(self, entry: Entry) -> None:
        """Delete the keys of a request that has ended; raises BrokerUnavailable."""
        for key in entry.request_keys[:2]:
            await self._delete(FORGET.run(self._link.client, (key,), (entry.request_token,)))
        for key in entry.request_keys[2:]:
            await self._delete(self._link.client.execute("DEL", key))

    async def _delete(self, deletion: Coroutine[Any, Any, Any]) -> None:
        """What may not be deleted expires by itself."""
        try:
            await deletion
        except AccessDenied as error:
            _log.warning("request_keys_kept", queue_name=self._queue_name, error=str(error))

    def _call(self, entries: Sequence[Entry], forbidden: Collection[str] = ()) -> Call:
        return Call(
            self._queue_name,
            self._link.settings,
            entries,
            apart=self.apart,
            one_slot=self._link.client.clustered,
            forbidden=forbidden,
        )

    async def _run(self, call: Call) -> Answers:
        answers, confirmed = await SETTLE.run_confirmed(
            self._link.client, call.keys, call.arguments, self._link.settings.confirm
        )
        return Answers(each=answers, confirmed=confirmed)

    async def _forbidden(self, call: Call) -> Collection[str] | None:
        """What to leave out; None when it would not help."""
        client = self._link.client
        if not await permitted(client, call.keys[:_REQUIRED]):
            return None
        forbidden = await forbidden_among(client, call.places)
        if call.request_keys and not await permitted(client, call.request_keys):
            self._apart_until = self._link.clock.monotonic() + _APART_SECONDS
        elif not forbidden:
            return None
        _log.warning("keys_forbidden", queue_name=self._queue_name, places=len(forbidden))
        return forbidden


class Call:
    """Keys and arguments of one call of settle.lua.

    With `apart` the keys of requests are left out, with `one_slot` result lists in other slots
    than the queue's. `places` and `request_keys` say which keys could be `forbidden`.
    """

    def __init__(
        self,
        queue_name: str,
        settings: RedisSettings,
        entries: Sequence[Entry],
        *,
        apart: bool,
        one_slot: bool,
        forbidden: Collection[str],
    ) -> None:
        keys = queue_keys(queue_name)
        self._nowhere = keys.claims
        self._forbidden = forbidden
        self._apart = apart
        self._slot = slot_tag(queue_name) if one_slot else None
        self.keys = [
            *(keys.queue, keys.claims, keys.leases, keys.deliveries),
            *map(self._usable, (keys.stranded, settings.retry_queue_name)),
            *map(self._usable, (settings.dead_letter_queue_name, settings.result_queue_name)),
            keys.lots,
        ]
        self.request_keys: list[str] = []
        self.arguments: list[Argument] = []
        self._places = {settings.result_queue_name: _RESULTS}
        for item in entries:
            self._add(item)

    @property
    def places(self) -> Sequence[str]:
        """Where entries of this call may go."""
        requests = set(self.request_keys)
        return [key for key in self.keys[_REQUIRED:] if key not in requests]

    def _usable(self, key: str) -> str:
        return self._nowhere if key in self._forbidden else key

    def _add(self, item: Entry) -> None:
        self.arguments += (
            item.token,
            item.what,
            item.value,
            item.number,
            item.result,
            self._place(item.target) if item.target else "",
            item.expires_ms,
            self._request(item),
        )

    def _place(self, target: str) -> int:
        index = self._places.get(target)
        if index is None:
            index = self._places[target] = self._new_place(target)
        return index

    def _new_place(self, target: str) -> int:
        if target in self._forbidden or self._slot not in (None, slot_tag(target)):
            return _NOWHERE
        self.keys.append(target)
        return len(self.keys)

    def _request(self, item: Entry) -> str:
        if self._apart or not item.request_keys:
            return ""
        self.keys += item.request_keys
        self.request_keys += item.request_keys
        count = len(item.request_keys)
        return f"{item.request_token} {len(self.keys) - count + 1} {count}"
