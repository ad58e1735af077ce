"""Token counts from answers: sense is counted, nonsense is not."""

from __future__ import annotations

import pytest

from async_processor.inference import usage


def test_usage_is_read_from_an_answer() -> None:
    read = usage.read(b'{"id":"x","usage":{"prompt_tokens":7,"completion_tokens":11,"total":18}}')
    assert read == usage.Usage(prompt_tokens=7, completion_tokens=11)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"usage":null}',
        b'{"usage":{"prompt_tokens":-1}}',
        b'{"usage":{"prompt_tokens":"7"}}',
        b'{"usage":{"prompt_tokens":1' + b"0" * 400 + b"}}",
        b'{"usage":' + b"[" * 100_000,
    ],
)
def test_nonsense_counts_nothing(body: bytes) -> None:
    assert usage.read(body) is None
