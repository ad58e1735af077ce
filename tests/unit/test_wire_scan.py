"""What is complete in a broken object is found, and nothing is made up from the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from async_processor.wire import scan
from async_processor.wire.envelope import InvalidMessage, read
from async_processor.wire.scan import HALVES, TOKENS, members, text_of, without_halves


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
        (b'{"a":[[1]],"b":[[[2]]]}', {"a": b"[[1]]", "b": b"[[[2]]]"}),
        (b'{"a":{"b":[{}]}}{"c":1}', {"a": b'{"b":[{}]}'}),
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


class Counted:
    """A pattern that counts what it finds."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.found = 0

    def search(self, text: bytes, at: int) -> re.Match[bytes] | None:
        self.found += 1
        return self._pattern.search(text, at)

    def finditer(self, text: bytes, at: int) -> Iterator[re.Match[bytes]]:
        for match in self._pattern.finditer(text, at):
            self.found += 1
            yield match


@pytest.mark.parametrize(
    "unit", [b"[", b"[]", b"[][", b":", b",", b'"":', b'"a":1,', b'"b":[],', b'"', b'"",', b'{"":']
)
@pytest.mark.parametrize("head", [b"{", b'{"a":1,"b":[', b"["])
def test_the_work_on_a_broken_message_is_bounded(
    head: bytes, unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, nested = Counted(scan._TOKEN), Counted(scan._NESTED)
    monkeypatch.setattr(scan, "_TOKEN", top)
    monkeypatch.setattr(scan, "_NESTED", nested)
    members(head + unit * (2 * TOKENS), tokens=TOKENS)
    assert top.found + nested.found <= TOKENS + 1


def test_what_came_before_too_many_brackets_is_found() -> None:
    text = b'{"a":1,"b":[' + b"[]," * 100 + b'0],"c":2}'
    assert members(text, tokens=100) == {"a": b"1"}
    assert members(text).keys() == {"a", "b", "c"}
    deep = b'{"b":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b',"c":2}'
    assert members(deep, tokens=10)["c"] == b"2"


def test_only_so_many_halves_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_halves(rb"\ud800" * (HALVES + 2)) == rb"\ufffd" * HALVES + rb"\ud800" * 2
    looked_at: list[bytes] = []
    usual = scan._with_whole

    def counted(match: re.Match[bytes]) -> bytes:
        looked_at.append(match[0])
        return usual(match)

    monkeypatch.setattr(scan, "_with_whole", counted)
    others = rb"\n\ud83d\ude00" * 10_000
    assert without_halves(others + rb"\ud800" + others + b"\\") == (
        others + rb"\ufffd" + others + b"\\"
    )
    assert len(looked_at) <= 4


@pytest.mark.parametrize("after", [b"", b',"note":1'])
def test_a_half_among_too_many_brackets_is_refused_rather_than_shortened(after: bytes) -> None:
    payload = rb'{"half":"\ud800","a":[' + b"[]," * TOKENS + b"0]}"
    with pytest.raises(InvalidMessage, match="half a surrogate pair"):
        read(b'{"id":"a","deadline":4e9,"payload":' + payload + after + b"}")
    few = b'{"id":"a","deadline":4e9,"payload":{"half":"\\ud800"}' + after
    with pytest.raises(InvalidMessage, match="half a surrogate pair"):
        read(few + b',"own":[' + b"[]," * TOKENS + b"0]}")
