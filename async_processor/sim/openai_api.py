"""The OpenAI-compatible bodies of a pod: reading calls, writing answers, as vLLM shapes them.

There is no tokenizer: four characters count as a token, and the answers are filler.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from async_processor.errors import AsyncProcessorError

_CHARACTERS_PER_TOKEN = 4
_WORDS = ("the", "model", "says", "that", "all", "is", "well", "and")
_encode = msgspec.json.Encoder().encode


class BadCall(AsyncProcessorError):
    """The body of a call is wrong; `status` is the HTTP status that says so."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Api(StrEnum):
    """The two calls a pod serves, by path."""

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Message(msgspec.Struct):
    role: str
    content: Any = ""


class _Body(msgspec.Struct):
    model: str = ""
    prompt: str | list[Any] | None = None
    messages: list[_Message] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    user: str = ""
    metadata: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Body).decode


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a call means that does not say: vLLM's 16 tokens, and an ordinary chat's length."""

    model: str
    completion_tokens: int = 16
    chat_tokens: int = 64


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call as the pod understands it; `created` is a Unix time in seconds.

    `request_id` is the caller's own: `user`, else `metadata.request_id` or `metadata.id`, else
    the header `x-request-id`, else empty. The answer's `id` ends with it.
    """

    api: Api
    model: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    with_usage: bool
    request_id: str
    created: int


def read_call(api: Api, body: bytes, *, header_id: str, defaults: Defaults, now: float) -> Call:
    """Parse a call that came at the Unix time `now`; raises BadCall."""
    try:
        fields = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(f"the body is not a valid request: {error}") from None
    return Call(
        api=api,
        model=fields.model or defaults.model,
        prompt_tokens=_prompt_tokens(api, fields),
        output_tokens=_output_tokens(api, fields, defaults),
        stream=fields.stream,
        with_usage=fields.stream_options is not None and fields.stream_options.include_usage,
        request_id=_request_id(fields) or header_id,
        created=int(now),
    )


def _output_tokens(api: Api, fields: _Body, defaults: Defaults) -> int:
    for wanted in (fields.max_completion_tokens, fields.max_tokens):
        if wanted is not None and wanted < 1:
            raise BadCall(f"max_tokens must be at least 1, got {wanted}")
        if wanted is not None:
            return wanted
    return defaults.chat_tokens if api is Api.CHAT else defaults.completion_tokens


def _request_id(fields: _Body) -> str:
    metadata = fields.metadata or {}
    return fields.user or str(metadata.get("request_id") or metadata.get("id") or "")


def _prompt_tokens(api: Api, fields: _Body) -> int:
    given = fields.prompt if api is Api.COMPLETIONS else fields.messages
    if not given:
        missing = "prompt" if api is Api.COMPLETIONS else "messages"
        raise BadCall(f"{missing} is required and must not be empty")
    if api is Api.CHAT:
        return sum(_tokens(message.content) + 4 for message in fields.messages or ())
    return _tokens(fields.prompt)


def _tokens(content: Any) -> int:
    match content:
        case str():
            return len(content) // _CHARACTERS_PER_TOKEN + 1
        case list():
            return sum(_tokens(part) for part in content)
        case dict():
            return _tokens(content.get("text", ""))
        case None:
            return 0
        case _:
            return 1


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
