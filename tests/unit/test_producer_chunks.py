"""Proves that a stream is cut into bounded chunks, in order, and that nothing waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from async_processor.producer.chunks import chunked


def _one(_item: object) -> int:
    return 1


async def test_chunks_keep_order_and_are_bounded_in_number() -> None:
    chunks = [chunk async for chunk in chunked(range(450), _one)]
    assert [len(chunk) for chunk in chunks] == [200, 200, 50]
    assert [item for chunk in chunks for item in chunk] == list(range(450))


async def test_chunks_are_bounded_in_size() -> None:
    chunks = [chunk async for chunk in chunked(range(3), lambda _: 700_000)]
    assert chunks == [[0, 1], [2]]


async def test_what_a_slow_source_has_given_does_not_wait_for_the_rest() -> None:
    more = asyncio.Event()

    async def slow() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    chunks = chunked(slow(), _one)
    async with asyncio.timeout(10):
        assert await anext(chunks) == [1]
        more.set()
        assert await anext(chunks) == [2]
        assert await anext(chunks, None) is None


async def test_what_came_before_a_failure_comes_first() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError

    chunks = chunked(failing(), _one)
    assert await anext(chunks) == [1]
    with pytest.raises(ValueError):  # noqa: PT011 - the very one of the source
        await anext(chunks)
