"""The types settings are made of: what they read, what they refuse, and what they hide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from async_processor.fields import (
    BindAddress,
    HttpUrl,
    MarkingHeader,
    Name,
    Port,
    Secret,
    SecretHeaders,
    Section,
    TlsSettings,
    UrlPath,
    host_and_port,
    read_duration,
    read_size,
    without_password,
)
from async_processor.fields.names import LONGEST_NAME

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5),
        ("2m", 120),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("250us", 0.00025),
        ("90", 90),
        (" 5s ", 5),
        (0, 0),
        (2.5, 2.5),
    ],
)
def test_durations_are_read(written: object, seconds: float) -> None:
    assert read_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "s",
        "5 s",
        "-5s",
        "5d",
        "1h-30m",
        "5s!",
        "five",
        "\u0665s",
        -1,
        True,
        None,
        [],
        float("nan"),
    ],
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        read_duration(written)


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_duration_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert read_duration(f"{number}{unit}") == pytest.approx(number * UNITS[unit])


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1))
def test_a_compound_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    written = "".join(f"{number}{unit}" for number, unit in parts)
    assert read_duration(written) == pytest.approx(sum(n * UNITS[unit] for n, unit in parts))


@given(st.floats(0, 1e9, allow_nan=False))
def test_a_number_is_seconds_as_it_stands(seconds: float) -> None:
    assert read_duration(seconds) == seconds
    assert read_duration(f"{seconds:.6f}") == pytest.approx(seconds, abs=1e-6)


@given(st.text())
def test_any_text_is_a_duration_or_refused_with_a_sentence(text: str) -> None:
    refused = pytest.raises(ValueError, match="must be a duration")
    try:
        value = read_duration(text)
    except ValueError:
        with refused:
            read_duration(text)
    else:
        assert value >= 0


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("16MiB", 16 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("32KiB", 32768),
        ("1GB", 10**9),
        ("1.5KiB", 1536),
        ("2M", 2 * 10**6),
        ("512B", 512),
        ("512", 512),
        (512, 512),
    ],
)
def test_sizes_are_read(written: object, size: int) -> None:
    assert read_size(written) == size


@pytest.mark.parametrize("written", ["", "MiB", "16 bananas", "-1", -1, 1.5, True, None, "16mib"])
def test_what_is_no_size_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        read_size(written)


@given(st.integers(0, 10**6), st.sampled_from(["", "Ki", "Mi", "Gi"]))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    power = ["", "Ki", "Mi", "Gi"].index(unit)
    assert read_size(f"{number}{unit}B") == number * 1024**power


@given(st.text())
def test_any_text_is_a_size_or_refused_with_a_sentence(text: str) -> None:
    refused = pytest.raises(ValueError, match="must be a size")
    try:
        value = read_size(text)
    except ValueError:
        with refused:
            read_size(text)
    else:
        assert value >= 0


class _Example(Section):
    url: HttpUrl = "http://localhost"
    path: UrlPath = "/v1"
    token: Secret = ""
    headers: SecretHeaders = Field(default_factory=dict)
    port: Port = 80
    name: Name = "x"
    marking: MarkingHeader = ""
    bind: BindAddress = ""


@pytest.mark.parametrize(
    "url",
    ["http://x", "https://x:8443/base/", "http://user:pw@x", "http://[::1]:8000"],
)
def test_http_urls_are_accepted_as_they_are(url: str) -> None:
    assert _Example(url=url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://x",
        "http://",
        "http:///x",
        "http://x?a=b",
        "http://x#y",
        "http://x:y",
        "http://x:0",
        "http://x:65536",
        "http://x\n",
        " http://x",
        "http://x y",
        "http://[::1",
        "http://a..b",
        "http://-x",
        "http://1.2.3",
        "http://$HOST",
        "http://" + 64 * "x",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        _Example(url=url)


@pytest.mark.parametrize("path", ["", "v1", "//x", "/a//b", "/a/../b", "/a b", "/a\n", "http://x"])
def test_only_clean_paths_are_accepted(path: str) -> None:
    with pytest.raises(ValidationError):
        _Example(path=path)


@pytest.mark.parametrize(
    "headers",
    [
        {"a b": "x"},
        {"": "x"},
        {"A": "x\r\nB: y"},
        {"A": "\x00"},
        {"A": "\x85"},
        {"A": " x"},
        {"A": "\ud800"},
        {"Content-Length": "1"},
        {"transfer-encoding": "chunked"},
    ],
)
def test_headers_must_be_legal(headers: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        _Example(headers=headers)


@pytest.mark.parametrize(
    "name", ["", "a\nb", "a\x00", " a", "a ", "a\u200b", "x" * (LONGEST_NAME + 1)]
)
def test_a_name_is_one_line(name: str) -> None:
    with pytest.raises(ValidationError):
        _Example(name=name)
    assert _Example(name="x" * LONGEST_NAME).name


@pytest.mark.parametrize("header", ["Host", "content-type", "TE", "a b", "x\n"])
def test_a_header_that_marks_a_request_has_no_other_meaning(header: str) -> None:
    with pytest.raises(ValidationError):
        _Example(marking=header)


@pytest.mark.parametrize("bind", ["", "0.0.0.0", "::", "localhost"])
def test_what_a_server_may_be_bound_to(bind: str) -> None:
    assert _Example(bind=bind).bind == bind


@pytest.mark.parametrize("bind", ["300.1.1.1", "0.0.0.0:80", "a b", "a\nb", "[::]", "http://h"])
def test_what_a_server_cannot_be_bound_to(bind: str) -> None:
    with pytest.raises(ValidationError):
        _Example(bind=bind)


@pytest.mark.parametrize(
    ("text", "place"), [("h", "h:5"), ("h:1", "h:1"), ("::1", None), ("[::1]", "[::1]:5")]
)
def test_a_host_may_leave_its_port_out(text: str, place: str | None) -> None:
    if place is None:
        with pytest.raises(ValueError, match="must be a host, or host:port"):
            host_and_port(text, 5)
    else:
        assert host_and_port(text, 5) == place


@pytest.mark.parametrize("port", [-1, 65536, "x", True, 1.5])
def test_ports_must_be_ports(port: object) -> None:
    with pytest.raises(ValidationError):
        _Example.model_validate({"port": port})


def test_a_number_may_come_as_text() -> None:
    assert _Example.model_validate({"port": "8080"}).port == 8080


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ValidationError, match="belong together"):
        TlsSettings(cert_file="a.pem")
    assert TlsSettings(cert_file="a.pem", key_file="a.key").cert_file == "a.pem"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        _Example().port = 1


def test_shown_settings_hide_their_secrets() -> None:
    example = _Example(
        url="http://user:hunter2@x/base", token="hunter2", headers={"Authorization": "hunter2"}
    )
    for text in (repr(example), str(example), f"{[example]}"):
        assert "hunter2" not in text
        assert "***" in text
    assert "Authorization" in repr(example)
    assert example.token == "hunter2"


def test_an_empty_secret_shows_that_it_is_empty() -> None:
    assert _Example().shown("token") == ""


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://:pw@h:6379/0", "redis://***@h:6379/0"),
        ("redis://u:p@ss/w?rd#@h/0", "redis://***@h/0"),
        ("redis://h/0?password=pw&x=y", "redis://h/0?password=***&x=y"),
        ("got 'rediss://u:pw@h', must", "got 'rediss://***@h', must"),
        ("http://h:80/path", "http://h:80/path"),
    ],
)
def test_passwords_of_urls_are_masked(url: str, masked: str) -> None:
    assert without_password(url) == masked


@given(st.text(st.characters(exclude_categories=("Z", "C")), min_size=12))
def test_no_password_shines_through(password: str) -> None:
    assert password not in without_password(f"redis://user:{password}@host:6379/0")
