"""What is complete in a broken object is found, and nothing is made up from the rest."""

from __future__ import annotations

import pytest

from async_processor.wire.scan import members, text_of, without_halves


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", {}),
        (b"{}", {}),
        (b"[1]", {}),
        (b'{"a": 1 , "b":[1,{"c":2}]}', {"a": b"1", "b": b'[1,{"c":2}]'}),
        (b'{"a":1,"a":2}', {"a": b"2"}),
        (b'{"\\u0061":1}', {"a": b"1"}),
        (b'{"a":"}{,:","b":2}', {"a": b'"}{,:"', "b": b"2"}),
        (b'{"a":1,"b":', {"a": b"1"}),
        (b'{"a":1,"b":2', {"a": b"1"}),
        (b'{"a":1,"b":"no end , "'[:-1], {"a": b"1"}),
        (b'{"a":1,"b":{"c":"no end}, ', {"a": b"1"}),
        (b'{"a":1}{"b":2}', {"a": b"1"}),
        (b'{"a":1}}}', {"a": b"1"}),
        (b']{"a":1}', {}),
        (b'{"\xff":1,"a":"\xff"}', {"a": b'"\xff"'}),
        (b"{1:2,:,}", {}),
    ],
)
def test_members(text: bytes, found: dict[str, bytes]) -> None:
    assert members(text) == found


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (rb"\ud800", rb"\ufffd"),
        (rb"\udc00\ud800", rb"\ufffd\ufffd"),
        (rb"\ud83d\ude00", rb"\ud83d\ude00"),
        (rb"\ud800\ud83d\ude00", rb"\ufffd\ud83d\ude00"),
        (rb"\\ud800", rb"\\ud800"),
        (rb"\\\ud800", rb"\\\ufffd"),
        (rb"\u00e9\n", rb"\u00e9\n"),
    ],
)
def test_halves_of_surrogate_pairs(text: bytes, whole: bytes) -> None:
    assert without_halves(text) == whole


@pytest.mark.parametrize(
    ("value", "text"),
    [(b'"a"', "a"), (b'"\\ud800"', "\ufffd"), (b"5", None), (b"", None), (b'"\xff"', None)],
)
def test_text_of_a_value(value: bytes, text: str | None) -> None:
    assert text_of(value) == text
