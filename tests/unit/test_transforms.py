"""Bodies on their way out and back: forms instead of payloads, parts of answers, plugins."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email import message_from_bytes
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from async_processor.inference.headers import HeaderRules
from async_processor.transforms import plugins, signed_url
from async_processor.transforms.base import Inapplicable, Rewrite
from async_processor.transforms.bodies import AT_ONCE, Bodies, Outgoing
from async_processor.transforms.build import build_bodies
from async_processor.transforms.gcs_uri_multipart import GcsUriMultipart
from async_processor.transforms.paths import EVERY, Step, read_path, select, without
from async_processor.transforms.settings import TransformSettings
from async_processor.wire.invalid import InvalidMessage
from async_processor.wire.request import Request

DEADLINE = 1_764_045_130
SIGNED = "https://storage.googleapis.com/b/o.wav?X-Goog-Signature=secret"


def request(**metadata: str) -> Request:
    return Request(id="r", deadline=DEADLINE, payload=None, metadata=metadata)


def form(payload: Mapping[str, Any], provider: str = "whisper") -> Rewrite | None:
    transform = GcsUriMultipart(["whisper", "ocr"])
    return transform(request(provider=provider), json.dumps(payload).encode())


def fields(rewrite: Rewrite | None) -> list[tuple[str, str]]:
    """What a form holds, read by another program than the one that wrote it."""
    assert rewrite is not None
    head = f"Content-Type: {rewrite.content_type}\r\n\r\n".encode()
    parts: Any = message_from_bytes(head + rewrite.body).get_payload()
    return [
        (
            str(part.get_param("name", header="content-disposition")),
            part.get_payload(decode=True).decode(),
        )
        for part in parts
    ]


def test_a_signed_url_goes_out_in_a_form() -> None:
    rewrite = form(
        {
            "model": "whisper-1",
            "gcs_uri": SIGNED,
            "temperature": 0.0,
            "words": True,
            "language": None,
            "prompt": 'Zürich\n"quoted" \\ 你',
            "options": {"a": [1, 2]},
            "file_base64": "",
        }
    )
    assert fields(rewrite) == [
        ("url", SIGNED),
        ("model", "whisper-1"),
        ("temperature", "0.0"),
        ("words", "true"),
        ("language", ""),
        ("prompt", 'Zürich\n"quoted" \\ 你'),
        ("options", '{"a": [1, 2]}'),
    ]


@pytest.mark.parametrize("payload", [{}, {"gcs_uri": ""}, {"gcs_uri": None}, {"gcs_uri": 5}])
def test_without_a_signed_url_the_payload_stays(payload: Mapping[str, Any]) -> None:
    assert form(payload) is None


def test_another_provider_is_left_alone() -> None:
    assert form({"gcs_uri": SIGNED}, provider="other") is None
    assert GcsUriMultipart(["whisper"])(request(), b'{"gcs_uri": "x"}') is None


@pytest.mark.parametrize("inline", ["AAAA", 5, {"a": 1}])
def test_inline_media_are_refused(inline: object) -> None:
    with pytest.raises(InvalidMessage, match=r"payload\.file_base64: cannot be sent beside"):
        form({"gcs_uri": SIGNED, "file_base64": inline})


def test_a_url_of_the_payloads_own_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"payload\.url"):
        form({"gcs_uri": SIGNED, "url": "http://elsewhere"})


@pytest.mark.parametrize("end", [DEADLINE - 1, DEADLINE])
def test_a_url_that_ends_with_the_deadline_is_refused_without_showing_it(end: int) -> None:
    with pytest.raises(InvalidMessage) as caught:
        form({"gcs_uri": f"{SIGNED}&Expires={end}"})
    assert str(caught.value) == (
        f"payload.gcs_uri: the signed URL ends at {end}, "
        f"which must be after the deadline {DEADLINE}"
    )


def test_a_url_that_outlives_the_deadline_is_sent() -> None:
    assert form({"gcs_uri": f"{SIGNED}&Expires={DEADLINE + 1}"}) is not None


@pytest.mark.parametrize(
    ("query", "end"),
    [
        ("X-Goog-Date=20251125T041910Z&X-Goog-Expires=3000", 1764047350),
        ("X-Goog-Expires=3000&X-Goog-Date=20251125T041910Z&Expires=1", 1764047350),
        ("Expires=1764045130&GoogleAccessId=a", 1764045130),
        ("X-Goog-Date=20251125T041910Z&X-Goog-Expires=soon", None),
        ("X-Goog-Date=yesterday&X-Goog-Expires=3000", None),
        ("X-Goog-Date=20251125T041910Z", None),
        ("Expires=" + "9" * 5000, None),
        ("Expires=" + "9" * 400, None),
        ("", None),
    ],
)
def test_when_a_signed_url_ends(query: str, end: float | None) -> None:
    assert signed_url.ends_at(f"https://storage.googleapis.com/b/o?{query}") == end


@given(st.text())
def test_no_url_breaks_it(url: str) -> None:
    signed_url.ends_at(url)


NAMES = st.text(max_size=12).filter(lambda name: name not in ("gcs_uri", "url", "file_base64"))


@given(st.dictionaries(NAMES, st.text(max_size=30) | st.integers(), max_size=4))
def test_no_field_can_forge_another(payload: dict[str, Any]) -> None:
    rewrite = form({"gcs_uri": SIGNED, **payload})
    assert rewrite is not None
    boundary = rewrite.content_type.partition("boundary=")[2].encode()
    assert rewrite.body.count(b"--" + boundary) == len(payload) + 2
    heads = [part.partition(b"\r\n\r\n")[0] for part in rewrite.body.split(b"--" + boundary)[1:-1]]
    assert all(head.count(b"\n") == 1 and head.count(b'"') == 2 for head in heads)


def test_one_content_type_whatever_the_callers_case_and_the_operators() -> None:
    rules = HeaderRules(configured={"CONTENT-TYPE": "text/operator"})
    message = Request(
        id="r",
        deadline=1.0,
        payload=b"{}",
        headers={"Content-Type": "a/b", "content-type": "c/d", "CONTENT-TYPE": "e/f", "X-A": "1"},
    )
    for each in (rules, HeaderRules(configured={})):
        sent = each.for_request(message, "multipart/form-data; boundary=x")
        assert sent == {"X-A": "1", "Content-Type": "multipart/form-data; boundary=x"}


ANSWER = b'{"id": "a", "choices": [{"text": "h\\u0069\\n", "n": 1.10, "logprobs": {"x": 1}},'
ANSWER += b' {"text": null, "logprobs": 2}], "usage": {"total": 12345678901234567890123}}'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("choices[0].text", b"hi\n"),
        ("$.choices[0].text", b"hi\n"),
        ("choices[1].text", b"null"),
        ("choices[0].n", b"1.10"),
        ("usage", b'{"total": 12345678901234567890123}'),
        ("choices[1]", b'{"text": null, "logprobs": 2}'),
    ],
)
def test_a_place_of_an_answer(path: str, text: bytes) -> None:
    assert select(ANSWER, read_path(path)) == text


@pytest.mark.parametrize(
    "path", ["nothing", "choices[2]", "choices.text", "id[0]", "usage.total.x"]
)
def test_a_place_that_is_not_there(path: str) -> None:
    with pytest.raises(Inapplicable):
        select(ANSWER, read_path(path))


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b'{"a": ', b"\xff", b'{"a": "\xff"}', b"[" * 9999]
)
def test_what_is_no_json_has_no_places(answer: bytes) -> None:
    with pytest.raises(Inapplicable):
        select(answer, read_path("a"))


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("usage", {"id", "choices"}),
        ("nothing", {"id", "choices", "usage"}),
        ("id.x", {"id", "choices", "usage"}),
        ("choices[0]", {"id", "choices", "usage"}),
    ],
)
def test_fields_are_left_out(path: str, left: set[str]) -> None:
    assert json.loads(without(ANSWER, read_path(path))).keys() == left


def test_a_field_of_every_item_is_left_out_and_the_rest_keeps_its_digits() -> None:
    assert without(ANSWER, read_path("choices[*].logprobs")) == (
        b'{"id":"a","choices":[{"text":"h\\u0069\\n","n":1.10},{"text":null}],'
        b'"usage":{"total": 12345678901234567890123}}'
    )


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=8,
)
PATHS = st.sampled_from(["a", "a.b", "a[0]", "a[*]", "a[*].b", "a[1][*].a", "b.a.b"])


def python_without(value: Any, path: Sequence[Step]) -> Any:
    """The same by Python's own means."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step in value:
        kept = {step: python_without(value[step], rest)} if rest else {}
        return {key: kept.get(key, each) for key, each in value.items() if rest or key != step}
    if isinstance(value, list) and isinstance(step, int):
        chosen = range(len(value)) if step == EVERY else [step]
        items = enumerate(value)
        if not rest:
            return [each for index, each in items if index not in chosen]
        return [python_without(each, rest) if index in chosen else each for index, each in items]
    return value


@given(st.dictionaries(st.sampled_from("ab"), VALUES), PATHS)
def test_leaving_out_is_what_python_would_leave(value: dict[str, Any], text: str) -> None:
    path = read_path(text)
    left = without(json.dumps(value).encode(), path)
    assert json.loads(left) == python_without(value, path)


@given(st.binary(max_size=30) | st.text('{}[]:,"ab\\ 1', max_size=30).map(str.encode), PATHS)
def test_no_answer_breaks_a_transform(answer: bytes, text: str) -> None:
    with suppress(Inapplicable):
        without(answer, read_path(text))
    with suppress(Inapplicable):
        select(answer, read_path(text))


@pytest.mark.parametrize(
    "text", ["", "a..b", ".a", "a.", "a[x]", "a[-1]", "[0]", "a[1", "a]", "$."]
)
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(ValueError, match="must be a path like"):
        read_path(text)


def bodies(**settings: Any) -> Bodies:
    return build_bodies(TransformSettings.model_validate(settings), {})


async def test_without_transforms_the_very_same_bytes_pass() -> None:
    body = b'{"a": 1}'
    out = await Bodies().outgoing(request(), body)
    assert out.body is body
    assert out.content_type == ""
    assert await Bodies().incoming(request(), body) is body


async def test_the_model_is_replaced_before_a_form_is_made() -> None:
    settings = {"type": "gcs_uri_multipart", "providers": "whisper"}
    made = build_bodies(TransformSettings.model_validate({"request": [settings]}), {"*": "new"})
    payload = json.dumps({"gcs_uri": SIGNED, "model": "old"}).encode()
    out = await made.outgoing(request(provider="whisper"), payload)
    assert ("model", "new") in fields(Rewrite(body=out.body, content_type=out.content_type))
    assert json.loads(out.payload)["model"] == "new"
    other = await made.outgoing(request(), payload)
    assert other == Outgoing(body=other.payload, payload=payload.replace(b"old", b"new"))


async def test_transforms_of_answers_follow_each_other_and_may_be_for_some_only() -> None:
    made = bodies(
        response=[
            {"type": "drop", "fields": "choices[*].logprobs"},
            {"type": "select", "path": "choices[0]", "providers": ["first"]},
        ]
    )
    dropped = await made.incoming(request(provider="other"), ANSWER)
    assert b"logprobs" not in dropped
    first = await made.incoming(request(provider="first"), ANSWER)
    assert first == b'{"text":"h\\u0069\\n","n":1.10}'


async def test_an_answer_of_another_shape_stays_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bodies(response=[{"type": "select", "path": "choices[0].text", "name": "bare"}])
    assert await made.incoming(request(), b"<html>") == b"<html>"
    assert "answer_not_transformed" in capsys.readouterr().out


async def test_a_large_body_is_rewritten_in_a_thread_of_its_own() -> None:
    threads = []

    def transform(_request: Request, payload: bytes, /) -> Rewrite:
        threads.append(threading.current_thread())
        return Rewrite(body=payload, content_type="x/y")

    made = Bodies(requests=[transform])
    await made.outgoing(request(), b"{" + b" " * AT_ONCE)
    await made.outgoing(request(), b"{}")
    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread()


def make_upper(parameters: Mapping[str, Any]) -> Any:
    """A plugin's entry point."""
    suffix = parameters["suffix"].encode()
    return lambda _request, body: body.upper() + suffix


def make_form(parameters: Mapping[str, Any]) -> Any:
    """A plugin's entry point."""
    return lambda _request, body: Rewrite(body=body[1:-1], content_type=parameters["type"])


def make_failing(_: Mapping[str, Any]) -> Any:
    """A plugin's entry point."""
    return lambda _request, body: json.loads(body)["choices"]


def make_silent(_: Mapping[str, Any]) -> Any:
    """A plugin's entry point."""
    return lambda _request, _body: None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("upper", f"{__name__}:make_upper", plugins.RESPONSES),
        EntryPoint("failing", f"{__name__}:make_failing", plugins.RESPONSES),
        EntryPoint("silent", f"{__name__}:make_silent", plugins.RESPONSES),
        EntryPoint("form", f"{__name__}:make_form", plugins.REQUESTS),
        EntryPoint("broken", "no.such.module:make", plugins.REQUESTS),
    ]
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: EntryPoints(points).select(group=group)
    )


@pytest.mark.usefixtures("installed")
async def test_plugins_are_found_by_their_entry_points() -> None:
    made = bodies(
        request=[{"type": "plugin", "entry_point": "form", "parameters": {"type": "x/y"}}],
        response=[{"type": "plugin", "entry_point": "upper", "parameters": {"suffix": "!"}}],
    )
    out = await made.outgoing(request(), b'{"a": 1}')
    assert (out.body, out.content_type) == (b'"a": 1', "x/y")
    assert await made.incoming(request(), b"yes") == b"YES!"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("plugin", "answer", "why"),
    [
        ("failing", b"secret", "the plugin failed: JSONDecodeError"),
        ("failing", b'{"secret": 1}', "the plugin failed: KeyError"),
        ("failing", b'{"choices": ["secret"]}', "the plugin gave a list, must give bytes"),
        ("silent", b"secret", "the plugin gave a NoneType, must give bytes"),
    ],
)
async def test_a_good_answer_outlives_the_mistake_of_a_plugin(
    plugin: str, answer: bytes, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The call is paid for; and what the log says of it holds nothing of the answer."""
    made = bodies(response=[{"type": "plugin", "entry_point": plugin}])
    assert await made.incoming(request(), answer) == answer
    said = capsys.readouterr().out
    assert why in said
    assert "secret" not in said


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"response": [{"type": "plugin", "entry_point": "upper"}]}, "cannot be made: KeyError"),
        ({"request": [{"type": "plugin", "entry_point": "broken"}]}, "cannot be made: ModuleNot"),
        (
            {"request": [{"type": "plugin", "entry_point": "upper"}]},
            "request_transforms: broken, form",
        ),
    ],
)
def test_a_plugin_that_cannot_be_made_is_a_mistake_in_the_settings(
    written: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        TransformSettings.model_validate(written)
