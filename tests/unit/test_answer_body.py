"""A body within its limit comes back whole, however it is cut and compressed; none goes over it."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.inference.answer_body import (
    AnswerBroken,
    AnswerTooLarge,
    collect,
    writable,
    written_size,
)
from async_processor.wire import result
from async_processor.wire.result import Result

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


@given(
    st.binary(max_size=500) | st.text(max_size=500).map(lambda text: text.encode(errors="replace"))
)
def test_the_size_in_a_result_is_what_a_result_takes(body: bytes) -> None:
    def encoded(payload: str) -> int:
        return len(result.encode(Result(id="a", payload=payload)))

    assert written_size(body) == encoded(body.decode(errors="replace")) - encoded("")


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
)
def test_json_within_the_limit_is_never_too_large(
    value: object, plain: bool, indent: int | str | None
) -> None:
    body = json.dumps(value, ensure_ascii=plain, indent=indent).encode(errors="replace")
    assert writable(body, limit=len(body)) == body


def test_what_blows_up_in_a_result_is_too_large() -> None:
    assert len(writable(bytes(333), limit=1000)) == 333
    for body in (bytes(334), b"\xff" * 668):
        with pytest.raises(AnswerTooLarge, match="2000 bytes as a JSON string"):
            writable(body, limit=1000)


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(AnswerBroken, match="'br'"):
        collect("br", 10)
