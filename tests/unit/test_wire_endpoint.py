"""An endpoint is a path and nothing else: a message cannot reach another host, or leave the path
by a trick that the gateway decodes later."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from async_processor.wire.endpoint import endpoint_fault


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/completions",
        "/v1/chat/completions/",
        "/v1/models/meta%2Fllama-3/infer",
        "/v1/a.b..c/...",
        "/v1/gemini-1.5:generateContent",
        "/a;v=1/b,c(d)'e'!$&*+=@~_-",
        "/caf%C3%A9",
        "/a%20b",
    ],
)
def test_a_path_is_allowed(path: str) -> None:
    assert endpoint_fault(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "v1/completions",
        "http://evil/v1",
        "//evil/v1",
        "@evil/v1",
        ":80@evil/",
        ".evil.com/",
        "/v1//completions",
        "/..",
        "/../admin",
        "/v1/../admin",
        "/v1/..",
        "/%2e%2e/admin",
        "/v1/.%2E/admin",
        "/v1%2f..%2fadmin",
        "/v1/%2fadmin",
        "/v1%2F%2Fadmin",
        "/v1/..;/admin",
        "/v1/..%3b/admin",
        "/v1/%252e%252e/admin",
        "/v1\\..\\admin",
        "/v1/%5c..%5cadmin",
        "/v1?x=1",
        "/v1#top",
        "/v1%3Fx=1",
        "/v1%23top",
        "/v1 HTTP/1.1",
        "/v1\r\nHost: evil",
        "/v1%0d%0aHost:%20evil",
        "/v1%00",
        "/v1%7f",
        "/v1\x7f",
        "/v1\x85",
        "/v1\u2028",
        "/caf\u00e9",
        "/v1/\uff0e\uff0e/admin",
        "/%",
        "/%zz",
        "/%2",
        "/v1|x",
        '/v1"x',
        "/<v1>",
        "/v1\ud800",
    ],
)
def test_anything_else_is_refused(path: str) -> None:
    assert endpoint_fault(path)


@given(st.text(alphabet="/.%25ef;a?#\\\r@:\u00e9") | st.text())
@example("/%2525252e")
def test_what_is_allowed_stays_below_the_root_however_it_is_decoded(tail: str) -> None:
    path = "/" + tail
    if endpoint_fault(path):
        return
    decoded = unquote(path)
    assert unquote(decoded) == decoded
    for seen in (path, decoded):
        assert not seen.startswith("//")
        assert ".." not in seen.replace(";", "/").replace("\\", "/").split("/")
        assert not set(seen) & set("?#\r\n\x00")
