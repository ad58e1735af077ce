"""Cuts a stream into chunks that fit one call of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

_T = TypeVar("_T")

_ITEMS: Final = 200
_BYTES: Final = 2**20
_LINGER_S: Final = 0.02
"""A slow source does not delay what it has given already by more than this."""


async def chunked(
    source: Iterable[_T] | AsyncIterable[_T], size: Callable[[_T], int]
) -> AsyncIterator[list[_T]]:
    """Lists of up to 200 items or about 1 MiB, in order; `size` is an item's in bytes.

    When the source fails, what it gave before comes first.
    """
    items = _awaited(source) if isinstance(source, AsyncIterable) else _ready(source)
    chunk: list[_T] = []
    filled = 0
    try:
        async for item in items:
            if item is not None:
                chunk.append(item)
                filled += size(item)
            if chunk and (item is None or len(chunk) >= _ITEMS or filled >= _BYTES):
                yield chunk
                chunk, filled = [], 0
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


async def _ready(source: Iterable[_T]) -> AsyncIterator[_T | None]:
    for item in source:
        yield item


async def _awaited(source: AsyncIterable[_T]) -> AsyncIterator[_T | None]:
    """The items, and None whenever the source lets us wait."""
    items = aiter(source)
    while True:
        upcoming = asyncio.ensure_future(anext(items, _END))
        try:
            done, _ = await asyncio.wait({upcoming}, timeout=_LINGER_S)
            if not done:
                yield None
            item = await upcoming
        finally:
            upcoming.cancel()
        if item is _END:
            return
        yield item  # type: ignore[misc]


_END: Final = object()
