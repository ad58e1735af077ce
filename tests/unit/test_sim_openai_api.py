"""A pod reads calls and shapes answers as vLLM does, and names the caller's id in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from async_processor.sim import answers
from async_processor.sim.calls import Api, BadCall, Call, Defaults, read_call

DEFAULTS = Defaults(model="sim")


def read(api: Api, header_id: str = "", **fields: Any) -> Call:
    body = json.dumps(fields).encode()
    return read_call(api, body, header_id=header_id, defaults=DEFAULTS, now=5.9)


def test_a_completion_is_read_with_vllms_defaults() -> None:
    call = read(Api.COMPLETIONS, prompt="x" * 40)
    assert (call.model, call.prompt_tokens, call.output_tokens, call.stream) == (
        "sim",
        11,
        16,
        False,
    )
    assert call.created == 5


def test_the_newer_name_of_the_answers_length_wins() -> None:
    messages = [{"role": "user", "content": "hi"}]
    call = read(Api.CHAT, messages=messages, max_tokens=3, max_completion_tokens=5)
    assert call.output_tokens == 5


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("abcd" * 3, 4), (["abcd", "abcd"], 4), ([1, 2, 3], 3)]
)
def test_prompts_of_every_shape_are_counted(prompt: Any, tokens: int) -> None:
    assert read(Api.COMPLETIONS, prompt=prompt).prompt_tokens == tokens


def test_message_parts_and_empty_contents_are_counted() -> None:
    parts = [{"type": "text", "text": "abcdefgh"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    assert read(Api.CHAT, messages=messages).prompt_tokens == 3 + 4 + 0 + 4


@pytest.mark.parametrize(
    ("fields", "header", "request_id"),
    [
        ({"user": "u", "metadata": {"id": "m"}}, "h", "u"),
        ({"metadata": {"request_id": "m"}}, "h", "m"),
        ({"metadata": {"id": "m"}}, "h", "m"),
        ({}, "h", "h"),
        ({}, "", ""),
    ],
)
def test_the_callers_own_id_is_found(fields: dict[str, Any], header: str, request_id: str) -> None:
    assert read(Api.COMPLETIONS, header, prompt="p", **fields).request_id == request_id


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "not a valid request"),
        (b"[]", "not a valid request"),
        (b"\xff", "not a valid request"),
        (b"{}", "prompt is required"),
        (b'{"prompt":"p","max_tokens":0}', "max_tokens"),
    ],
)
def test_a_wrong_call_is_refused_with_its_reason(body: bytes, complaint: str) -> None:
    with pytest.raises(BadCall, match=complaint):
        read_call(Api.COMPLETIONS, body, header_id="", defaults=DEFAULTS, now=0)


def test_an_answer_carries_id_text_and_usage() -> None:
    call = read(Api.COMPLETIONS, prompt="abcd", max_tokens=3, user="r-1", model="m")
    answer = json.loads(answers.answer(call))
    assert answer["id"] == "cmpl-r-1"
    assert answer["model"] == "m"
    assert answer["choices"][0]["text"].split() == ["the", "model", "says"]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


def test_an_answer_can_be_as_big_as_wanted_and_stays_valid() -> None:
    call = read(Api.CHAT, messages=[{"role": "user", "content": "hi"}])
    body = answers.answer(call, least_bytes=10_000)
    assert len(body) == 10_000
    assert json.loads(body)["choices"][0]["message"]["role"] == "assistant"


def test_the_chunks_of_a_stream_make_up_the_text_and_end_with_usage() -> None:
    call = read(
        Api.CHAT,
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=5,
        stream_options={"include_usage": True},
    )
    stream = answers.chunk(call, 0, 2) + answers.chunk(call, 2, 5) + answers.closing(call)
    events = [line.removeprefix(b"data: ") for line in stream.split(b"\n\n") if line]
    assert events.pop() == b"[DONE]"
    bodies = [json.loads(event) for event in events]
    assert bodies.pop()["usage"]["completion_tokens"] == 5
    contents = [body["choices"][0]["delta"]["content"] for body in bodies]
    assert "".join(contents) == answers.text(0, 5)
    assert [body["choices"][0]["finish_reason"] for body in bodies] == [None, "length"]
