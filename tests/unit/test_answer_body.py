"""A body within its limit comes back whole, however it is cut and compressed; none goes over it."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.inference.answer_body import AnswerBroken, AnswerTooLarge, collect

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


def feed(encoding: str, content: bytes, *, limit: int, piece: int) -> bytes:
    body = collect(encoding, limit)
    for start in range(0, len(content), piece):
        body.feed(content[start : start + piece])
    return body.whole()


@given(
    plain=st.binary(max_size=2000),
    encoding=st.sampled_from(sorted(ENCODERS)),
    piece=st.integers(1, 300),
)
def test_comes_back_whole(plain: bytes, encoding: str, piece: int) -> None:
    content = ENCODERS[encoding](plain)
    assert feed(encoding, content, limit=len(plain), piece=piece) == plain


@given(
    plain=st.binary(min_size=1, max_size=2000),
    encoding=st.sampled_from(sorted(ENCODERS)),
    piece=st.integers(1, 300),
)
def test_one_byte_over_the_limit_is_too_large(plain: bytes, encoding: str, piece: int) -> None:
    content = ENCODERS[encoding](plain)
    with pytest.raises(AnswerTooLarge):
        feed(encoding, content, limit=len(plain) - 1, piece=piece)


@given(st.binary(max_size=500), st.sampled_from(["gzip", "deflate"]))
def test_garbage_raises_our_own_errors_only(content: bytes, encoding: str) -> None:
    try:
        feed(encoding, content, limit=1000, piece=50)
    except (AnswerBroken, AnswerTooLarge):
        return


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    bomb = gzip.compress(bytes(100_000_000))
    tracemalloc.start()
    with pytest.raises(AnswerTooLarge):
        feed("gzip", bomb, limit=100_000, piece=len(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(AnswerBroken, match="'br'"):
        collect("br", 10)
