"""The count of one quota in Redis: questions that come together are asked in one call."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from async_processor.clock import Clock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.listeners import Leave, Listeners
from async_processor.one_loop import OneLoop
from async_processor.redis_io.client import Argument
from async_processor.redis_io.scripts import Script
from async_processor.redis_io.shared import SharedClient
from async_processor.telemetry.logs import get_logger

AT_ONCE: Final = 256
"""Questions in one call."""

RETRY_SECONDS: Final = 0.5
"""At most this long after Redis came back it is noticed."""

_GIVING_BACK: Final = frozenset({"free", "refund", "settle"})

_log = get_logger(__name__)


class Question(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One item of a quota script, which explains the fields. `keys` are the tenant's."""

    what: str
    keys: tuple[str, ...]
    tenant: str
    name: str = ""
    start: str = ""
    limit: int = 0
    remember_ms: int = 0


_Asked = tuple[Question, "asyncio.Future[int]"]


class Ledger(OneLoop):
    """Asks a quota script. Calls are made one after the other, in the order of the questions.

    `available` says whether the last call was answered. After one that was not, `run` asks for
    nothing until there is an answer again.
    """

    def __init__(
        self,
        client: SharedClient,
        script: Script,
        *,
        shared_key: str,
        settings: Sequence[Argument],
        clock: Clock,
    ) -> None:
        self._client = client
        self._script = script
        self._shared_key = shared_key
        self._settings = tuple(settings)
        self._clock = clock
        self._asked: deque[_Asked] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._wakes = Listeners[[]]()
        self.available = False
        self.fault = "not read yet"
        """Why it is not available."""

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        """Call `wake` when the quota can be read again."""
        return self._wakes.add(wake)

    def ask(self, question: Question) -> asyncio.Future[int]:
        """The script's answer; the future raises BrokerUnavailable when there is none.

        The question may have been executed all the same, also when the future is cancelled.
        """
        answer: asyncio.Future[int] = self.loop.create_future()
        self._asked.append((question, answer))
        if self._sender is None:
            self._sender = self.loop.create_task(self._send(), name=f"quota {self._shared_key}")
        return answer

    async def read(self, questions: Sequence[Question]) -> Sequence[int]:
        """All answers, apart from what is asked: if it fails, nothing else does.

        Raises BrokerUnavailable.
        """
        answers: list[int] = []
        for first in range(0, len(questions), AT_ONCE):
            answers += await self._call(questions[first : first + AT_ONCE])
        return answers

    async def flush(self, timeout: float) -> None:
        """Wait until everything is answered, at most `timeout` seconds; give the rest up."""
        if self._sender is None:
            return
        await asyncio.wait([self._sender], timeout=timeout)
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def run(self) -> None:
        """Look whether the quota can be read, as long as it cannot. Runs until cancelled."""
        while True:
            if not self.available:
                await self._look()
            await self._clock.sleep(RETRY_SECONDS * random.uniform(0.4, 1))

    async def _look(self) -> None:
        try:
            await self._call(())
        except BrokerUnavailable as error:
            self._lost(error)
        else:
            self._found()

    async def _send(self) -> None:
        try:
            while self._asked:
                await asyncio.sleep(0)  # whoever is about to ask comes along
                await self._send_batch(self._take_batch())
        finally:
            self._sender = None
            _fail(self._asked, BrokerUnavailable("the daemon stops"))
            self._asked.clear()

    def _take_batch(self) -> list[_Asked]:
        """What is given back goes first: others of the batch may take it.

        What nobody asks for any more is left out, for it would come after its own giving back.
        """
        count = min(len(self._asked), AT_ONCE)
        batch = [self._asked.popleft() for _ in range(count)]
        wanted = [asked for asked in batch if not asked[1].cancelled()]
        return sorted(wanted, key=_comes_later)

    async def _send_batch(self, batch: Sequence[_Asked]) -> None:
        try:
            answers = await self._call([question for question, _ in batch])
        except BrokerUnavailable as error:
            self._lost(error)
            _fail(batch, error)
        except BaseException:
            _fail(batch, BrokerUnavailable("the daemon stops"))
            raise
        else:
            self._found()
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def _call(self, questions: Sequence[Question]) -> Sequence[int]:
        keys = [self._shared_key]
        places: dict[str, int] = {}
        arguments = list(self._settings)
        for question in questions:
            first = question.keys[0]
            if first not in places:
                places[first] = len(keys) + 1
                keys += question.keys
            arguments += (
                question.what, places[first], question.tenant, question.name, question.start,
                question.limit, question.remember_ms,
            )  # fmt: skip
        try:
            answers: Sequence[int] = await self._script.run(
                await self._client.get(), keys, arguments
            )
        except BrokerRefused as error:
            # An operator may mend it: a permission, a key of another type.
            raise BrokerUnavailable(str(error)) from error
        return answers

    def _found(self) -> None:
        if self.available:
            return
        self.available, self.fault = True, ""
        _log.info("quota_readable", quota=self._shared_key, redis=self._client.place)
        self._wakes.tell()

    def _lost(self, error: BrokerUnavailable) -> None:
        if self.available or self.fault != str(error):
            _log.warning("quota_unreadable", quota=self._shared_key, error=str(error))
        self.available, self.fault = False, str(error)


def _comes_later(asked: _Asked) -> bool:
    return asked[0].what not in _GIVING_BACK


def _fail(batch: Iterable[_Asked], error: BrokerUnavailable) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
            future.exception()  # who gave something back need not wait for the answer
