"""Writing a pod's answers as vLLM shapes them. The text is filler: one word is one token."""

from __future__ import annotations

from typing import Any

import msgspec

from async_processor.sim.calls import Api, Call

_WORDS = ("the", "model", "says", "that", "all", "is", "well", "and")
_encode = msgspec.json.Encoder().encode


def text(start: int, end: int) -> str:
    """The answer's tokens from `start` up to, but without, `end`."""
    words = (_WORDS[position % len(_WORDS)] for position in range(start, end))
    return "".join(f" {word}" for word in words)


def answer(call: Call, *, least_bytes: int = 0) -> bytes:
    """The whole body; padded, inside of the text, to `least_bytes`."""
    content = text(0, call.output_tokens)
    body = _encode(_answer(call, content))
    if len(body) >= least_bytes:
        return body
    return _encode(_answer(call, content + "." * (least_bytes - len(body))))


def _answer(call: Call, content: str) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length"}
    if call.api is Api.CHAT:
        choice["message"] = {"role": "assistant", "content": content}
    else:
        choice["text"] = content
    kind = "chat.completion" if call.api is Api.CHAT else "text_completion"
    return _head(call, kind) | {"choices": [choice], "usage": usage(call)}


def chunk(call: Call, start: int, end: int) -> bytes:
    """One server-sent event with the tokens from `start` to `end`."""
    done = end >= call.output_tokens
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if done else None}
    if call.api is Api.CHAT:
        role = {"role": "assistant"} if start == 0 else {}
        choice["delta"] = role | {"content": text(start, end)}
    else:
        choice["text"] = text(start, end)
    return _event(_head(call, _chunk_kind(call)) | {"choices": [choice]})


def closing(call: Call) -> bytes:
    """The end of a stream: the usage, where it was asked for, and the end mark."""
    end = b"data: [DONE]\n\n"
    if not call.with_usage:
        return end
    return _event(_head(call, _chunk_kind(call)) | {"choices": [], "usage": usage(call)}) + end


def _chunk_kind(call: Call) -> str:
    return "chat.completion.chunk" if call.api is Api.CHAT else "text_completion"


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


def _head(call: Call, kind: str) -> dict[str, Any]:
    prefix = "chatcmpl" if call.api is Api.CHAT else "cmpl"
    return {
        "id": f"{prefix}-{call.request_id or 'anonymous'}",
        "object": kind,
        "created": call.created,
        "model": call.model,
    }


def usage(call: Call) -> dict[str, int]:
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.output_tokens,
        "total_tokens": call.prompt_tokens + call.output_tokens,
    }


def error(message: str, kind: str, status: int) -> bytes:
    """An error's body as vLLM writes it."""
    return _encode({"error": {"message": message, "type": kind, "param": None, "code": status}})


def models(model_name: str, *, max_model_len: int, now: float) -> bytes:
    """The body of `/v1/models` at the Unix time `now`."""
    card = {
        "id": model_name,
        "object": "model",
        "created": int(now),
        "owned_by": "vllm",
        "root": model_name,
        "max_model_len": max_model_len,
    }
    return _encode({"object": "list", "data": [card]})
