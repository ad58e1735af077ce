"""Reading the OpenAI-compatible calls that a pod serves.

There is no tokenizer: four characters count as a token.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from async_processor.errors import AsyncProcessorError

_CHARACTERS_PER_TOKEN = 4


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
