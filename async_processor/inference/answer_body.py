"""Collects an answer's body within a limit that counts what it decompresses to.

The engine asks for plain answers. A server or proxy that compresses all the same is understood
(gzip, deflate), and a few bytes that blow up to gigabytes are cut off at the limit.

A result holds the body as a JSON string, in which a JSON text of any kind is at most twice as large
(quotes, backslashes, line ends). Other bytes grow up to six times: they are cut off at that double.
"""

from __future__ import annotations

import zlib
from typing import Final, Protocol

from async_processor.errors import AsyncProcessorError

_EITHER_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_RAW: Final = -zlib.MAX_WBITS

GROWTH: Final = 2
"""How many times the limit a body may take up as a JSON string."""
_MOST_GROWTH: Final = 6
_TWO_BYTES: Final = b'"\\\b\t\n\f\r'
_SIX_BYTES: Final = bytes(code for code in range(0x20) if code not in _TWO_BYTES)


class AnswerTooLarge(AsyncProcessorError):
    """The answer is larger than the limit allows."""


class AnswerBroken(AsyncProcessorError):
    """The answer's body cannot be decoded."""


class Body(Protocol):
    """Takes the body as it comes in and gives it back whole."""

    def feed(self, chunk: bytes) -> None:
        """Raises AnswerTooLarge or AnswerBroken."""
        ...

    def whole(self) -> bytes:
        """Raises AnswerBroken when the end is missing."""
        ...


def collect(encoding: str, limit: int) -> Body:
    """A body in a `Content-Encoding`, of at most `limit` bytes.

    Raises:
        AnswerBroken: the encoding is none of those understood.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return Plain(limit)
        case "gzip" | "x-gzip" | "deflate":
            return Compressed(limit)
    raise AnswerBroken(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")


def writable(body: bytes, limit: int) -> bytes:
    """The body itself. Raises AnswerTooLarge if it takes more than twice the limit in a result."""
    most = GROWTH * limit
    if _MOST_GROWTH * len(body) > most and written_size(body) > most:
        raise AnswerTooLarge(f"the answer is larger than {most} bytes as a JSON string")
    return body


def written_size(body: bytes) -> int:
    """Bytes of a body as a JSON string, without the quotes around it."""
    text = body.decode(errors="replace").encode()
    return len(text) + _count(text, _TWO_BYTES) + (_MOST_GROWTH - 1) * _count(text, _SIX_BYTES)


def _count(text: bytes, wanted: bytes) -> int:
    return len(text) - len(text.translate(None, wanted))


class Plain:
    """A body as it is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._limit:
            raise AnswerTooLarge(f"the answer is larger than {self._limit} bytes")
        self._chunks.append(chunk)

    def whole(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)


class Compressed:
    """A gzip (of one or more members) or deflate body; never holds more than the limit."""

    def __init__(self, limit: int) -> None:
        self._plain = Plain(limit)
        self._room = limit
        self._inflater: zlib._Decompress | None = None
        self._begun = False

    def feed(self, chunk: bytes) -> None:
        while chunk:
            if self._inflater is None:
                self._inflater = self._begin(chunk)
            chunk = self._inflate(self._inflater, chunk)

    def _begin(self, chunk: bytes) -> zlib._Decompress:
        """Some servers send deflate without zlib's header, whose low nibble is always 8."""
        headed = self._begun or chunk[0] == 0x1F or chunk[0] & 0x0F == 8
        self._begun = True
        return zlib.decompressobj(_EITHER_GZIP_OR_ZLIB if headed else _RAW)

    def _inflate(self, inflater: zlib._Decompress, chunk: bytes) -> bytes:
        """Take over what fits, and return what belongs to the next member."""
        try:
            plain = inflater.decompress(chunk, self._room + 1)
        except zlib.error as error:
            raise AnswerBroken(f"the answer cannot be decompressed: {error}") from None
        self._room -= len(plain)
        self._plain.feed(plain)
        if inflater.eof:
            self._inflater = None
            return inflater.unused_data
        return inflater.unconsumed_tail

    def whole(self) -> bytes:
        if self._inflater is not None:
            raise AnswerBroken("the compressed answer has no end")
        return self._plain.whole()
