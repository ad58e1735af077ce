"""What the bodies of one queue's requests and answers go through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

import msgspec

from async_processor.telemetry.logs import get_logger
from async_processor.transforms.base import (
    Inapplicable,
    RequestTransform,
    ResponseTransform,
    Rewrite,
)
from async_processor.transforms.models import Models
from async_processor.wire.request import Request

AT_ONCE: Final = 64 * 1024
"""Bytes of a body that is rewritten at once; a larger one in a thread, lest all else waits."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_log = get_logger(__name__)


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A body, and the JSON object that it was made of; an empty content type means JSON."""

    body: bytes
    payload: bytes
    content_type: str = ""


class Bodies(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A queue's rewrites. Of the request transforms the first that takes a request has it; of the
    response transforms each in turn, by its name.

    Without any of them a body passes as it is, the very same bytes.
    """

    models: Models | None = None
    requests: Sequence[RequestTransform] = ()
    responses: Sequence[tuple[str, ResponseTransform]] = ()

    async def outgoing(self, request: Request, payload: bytes) -> Outgoing:
        """What is sent. Raises InvalidMessage when it can never be."""
        if self.models is None and not self.requests:
            return Outgoing(body=payload, payload=payload)
        return await _aside(len(payload), self._rewritten, request, payload)

    async def incoming(self, request: Request, answer: bytes) -> bytes:
        """What the result of a good answer holds."""
        if not self.responses:
            return answer
        return await _aside(len(answer), self._reduced, request, answer)

    def _rewritten(self, request: Request, payload: bytes) -> Outgoing:
        if self.models is not None:
            payload = self.models.replaced(payload)
        rewrites = (transform(request, payload) for transform in self.requests)
        rewrite = next(filter(None, rewrites), Rewrite(body=payload))
        return Outgoing(body=rewrite.body, payload=payload, content_type=rewrite.content_type)

    def _reduced(self, request: Request, answer: bytes) -> bytes:
        for name, transform in self.responses:
            try:
                answer = transform(request, answer)
            except Inapplicable as error:
                _log.warning("answer_not_transformed", key=name, transform=name, why=str(error))
        return answer


async def _aside(size: int, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    if size <= AT_ONCE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
