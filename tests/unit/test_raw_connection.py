"""Answers come out as they went in, however the network cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ResponseError

from async_processor.redis_io.raw_connection import RawConnection

Answer = int | bytes | None | list[Any]

answers = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=200),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


class Wire(asyncio.Transport):
    """A transport that carries nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._closing = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self._closing = True


def connection() -> RawConnection:
    opened = SimpleNamespace(_writer=SimpleNamespace(transport=Wire()))
    return RawConnection(cast("AbstractConnection", opened))


def resp(answer: Answer) -> bytes:
    """As a server writes it (RESP 2)."""
    match answer:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % answer
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(answer), answer)
        case list():
            return b"*%d\r\n%s" % (len(answer), b"".join(map(resp, answer)))


def cut(text: bytes, places: Sequence[int]) -> list[bytes]:
    borders = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(borders)]


@given(st.lists(answers, min_size=1, max_size=5), st.lists(st.integers(0, 10_000), max_size=10))
async def test_however_the_network_cuts_them(wanted: list[Answer], places: list[int]) -> None:
    one = connection()
    receiving = asyncio.create_task(one.receive(len(wanted)))
    await asyncio.sleep(0)
    for piece in cut(b"".join(map(resp, wanted)), places):
        assert not receiving.done()
        one.data_received(piece)
        await asyncio.sleep(0)
    assert await receiving == wanted
    assert one.usable


async def test_an_error_is_an_answer() -> None:
    one = connection()
    one.data_received(b"-NOSCRIPT No matching script\r\n+OK\r\n")
    error, text = await one.receive(2)
    assert isinstance(error, ResponseError)
    assert str(error) == "NOSCRIPT No matching script"
    assert text == b"OK"


async def test_answers_that_came_before_the_end_are_received() -> None:
    one = connection()
    one.data_received(b"+OK\r\n")
    one.connection_lost(None)
    assert await one.receive(1) == [b"OK"]
    with pytest.raises(ConnectionLost):
        await one.receive(1)


async def test_what_nobody_asked_for_makes_it_unusable() -> None:
    one = connection()
    one.data_received(b"+hello\r\n")
    assert not one.usable


async def test_what_is_no_answer_ends_it() -> None:
    one = connection()
    receiving = asyncio.create_task(one.receive(1))
    await asyncio.sleep(0)
    one.data_received(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(InvalidResponse):
        await receiving
    assert not one.usable
