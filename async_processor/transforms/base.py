"""Rewriting bodies: what a transform gets and gives. Plugins are written against this page.

A transform keeps no state between calls, and may be called in another thread, for a large body is
not rewritten in the thread that does everything else.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.wire.request import Request


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """What goes out instead of the payload; an empty content type means JSON as ever."""

    body: bytes
    content_type: str = ""


class RequestTransform(Protocol):
    """Makes another body of a request's payload."""

    def __call__(self, request: Request, payload: bytes, /) -> Rewrite | None:
        """What to send; None when the request is none of this transform's.

        `payload` is the JSON object that would be sent, bytes as they came; look there rather than
        at `request.payload`, which may be stored elsewhere.

        Raises:
            InvalidMessage: it can never be sent: the request ends as INVALID_REQUEST.
        """
        ...


class ResponseTransform(Protocol):
    """Makes another text of a good answer (2xx)."""

    def __call__(self, request: Request, answer: bytes, /) -> bytes:
        """What the result holds; the answer itself when it is none of this transform's.

        Raises:
            Inapplicable: the answer has not the shape that is needed; it stays as it is, as it does
                after any other error.
        """
        ...


class Inapplicable(AsyncProcessorError):
    """An answer has not the shape that a transform needs."""
