"""Wakes whoever waits for work, as soon as there is some, without asking all the time.

Redis is asked once whether a queue holds anything. From then on it tells of the next change by
itself (CLIENT TRACKING), so an idle queue costs nothing. Where tracking is forbidden (by an ACL,
by a proxy) all waited-for queues are looked at together, at most every 20 ms. In both modes one
look a second is the safety net.

A queue is `quiet` while Redis has said that it is empty and has promised to tell of a change, which
can only be that it gets something; so then nothing is asked before those who wait are told, though
another replica may be quicker. No change is missed: one that comes while a look is under way makes
the look's answer void.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.client import Command, Line
from async_processor.telemetry.logs import get_logger
from async_processor.timeouts import Timeouts
from async_processor.transport.redis_sorted_set.link import Link, pauses

_CHANNEL: Final = "__redis__:invalidate"
_SAFETY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02
_PING_SECONDS: Final = 5.0
_SILENCE_SECONDS: Final = 15.0

_log = get_logger(__name__)


class Watcher:
    """One for all queues of a transport."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._quiet: set[str] = set()
        self._changes: Counter[str] = Counter()
        self._wanted = asyncio.Event()
        self._pauses = pauses()
        self._timeouts = Timeouts()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch; the broker need not be there."""
        self._task = asyncio.create_task(self._watch(), name="watch queues")

    async def stop(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self, queue_name: str, timeout: float) -> bool:
        """Return True as soon as the queue holds a message, False after `timeout` seconds."""
        self._raise_failure()
        told = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue_name, set()).add(told)
        if queue_name not in self._quiet:
            self._wanted.set()
        try:
            with self._timeouts.limit(timeout):
                await told
        except TimeoutError:
            return False
        finally:
            self._leave(queue_name, told)
        return True

    def _raise_failure(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    def _leave(self, queue_name: str, told: asyncio.Future[None]) -> None:
        self._waiting[queue_name].discard(told)
        if not self._waiting[queue_name]:
            del self._waiting[queue_name]

    async def _watch(self) -> None:
        """Watch by notice, else by looking; begin anew whenever the broker was lost."""
        while True:
            try:
                await self._watch_by_notice()
            except BrokerUnavailable as error:
                _log.warning("watch_interrupted", error=str(error))
            except BrokerRefused as error:
                _log.info("tracking_unavailable", error=str(error))
                await self._watch_by_looking()
            finally:
                self._quiet.clear()
            await self._link.clock.sleep(next(self._pauses))

    async def _watch_by_looking(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                await self._look_together()
                await asyncio.sleep(random.uniform(0.6, 1) * _LOOK_SECONDS)
        except (BrokerUnavailable, BrokerRefused) as error:
            _log.warning("watch_interrupted", error=str(error))

    async def _look_together(self) -> None:
        names = tuple(self._waiting)
        if not names:
            self._wanted.clear()
            return
        self._tell_filled(names, await self._link.client.pipeline(_looks(names)))

    async def _watch_by_notice(self) -> None:
        listener = await self._link.client.line()
        try:
            asker = await self._link.client.line()
            try:
                await self._track(listener, asker)
            finally:
                await asker.close()
        finally:
            await listener.close()

    async def _track(self, listener: Line, asker: Line) -> None:
        identity = await listener.ask("CLIENT", "ID")
        await listener.ask("SUBSCRIBE", _CHANNEL)
        await asker.ask("CLIENT", "TRACKING", "ON", "REDIRECT", identity)
        self._pauses = pauses()
        self._wanted.set()
        await _all_until_first_error(
            self._listen(listener), _keep_alive(listener), self._answer_wants(asker)
        )

    async def _listen(self, listener: Line) -> None:
        while True:
            match await listener.receive(_SILENCE_SECONDS):
                # Text on this channel is some client's PUBLISH: Redis itself tells of lists.
                case [b"message", _, list() | None as keys]:
                    self._changed(keys)

    def _changed(self, keys: list[bytes] | None) -> None:
        """None: the database was emptied, and tells of none of its keys any more."""
        names = self._quiet | self._waiting.keys() if keys is None else map(bytes.decode, keys)
        for name in names:
            self._changes[name] += 1
            if name in self._quiet and keys is not None:
                self._tell(name)
            elif name in self._waiting:
                self._wanted.set()
            self._quiet.discard(name)

    async def _answer_wants(self, asker: Line) -> None:
        """Wants for one queue do not put off the safety look at the others."""
        loop = asyncio.get_running_loop()
        all_due = loop.time() + _SAFETY_SECONDS
        while True:
            await _set_within(self._wanted, all_due - loop.time())
            self._wanted.clear()
            names = set(self._waiting)
            if loop.time() < all_due:
                names -= self._quiet
            else:
                all_due = loop.time() + _SAFETY_SECONDS
            if names:
                await self._look(asker, tuple(names))

    async def _look(self, asker: Line, names: tuple[str, ...]) -> None:
        before = {name: self._changes[name] for name in names}
        answers = await asker.ask_all(_looks(names))
        for name, filled in zip(names, answers, strict=True):
            if self._changes[name] != before[name]:
                self._wanted.set()
            elif not filled:
                self._quiet.add(name)
        self._tell_filled(names, answers)

    def _tell_filled(self, names: Collection[str], answers: Iterable[Any]) -> None:
        for name, filled in zip(names, answers, strict=True):
            if filled:
                self._tell(name)

    def _tell(self, name: str) -> None:
        for told in self._waiting.get(name, ()):
            if not told.done():
                told.set_result(None)


def _looks(names: Iterable[str]) -> list[Command]:
    """A sorted set exists exactly while it holds something; the wrong type is no error here."""
    return [("EXISTS", name) for name in names]


async def _keep_alive(listener: Line) -> None:
    """The answers keep `_listen` from taking a silent line for a dead one."""
    while True:
        await listener.send("PING")
        await asyncio.sleep(_PING_SECONDS)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def _all_until_first_error(*work: Any) -> None:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
