"""Log records: one line each, no secrets, no floods, and nothing formatted below the level."""

from __future__ import annotations

import errno
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from async_processor.telemetry.logs import (
    LogFormat,
    _LibraryRecords,
    configure,
    get_logger,
    presentable,
)
from async_processor.telemetry.masking import is_secret, mask_url, one_line
from async_processor.testing.clock import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def out(clock: ManualClock) -> io.StringIO:
    stream = io.StringIO()
    configure(level="info", stream=stream, clock=clock)
    return stream


def records(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


log = get_logger("tests")


def test_json_where_there_is_no_terminal(out: io.StringIO) -> None:
    log.info("request_done", queue_id="q", attempts=2, share=0.5, tags=("a", "b"), none=None)
    (record,) = records(out)
    assert record.pop("timestamp").endswith("Z")
    assert record == {
        "event": "request_done",
        "level": "info",
        "component": "tests",
        "queue_id": "q",
        "attempts": 2,
        "share": 0.5,
        "tags": ["a", "b"],
        "none": None,
    }


def test_colours_on_a_terminal_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    configure(stream=terminal)
    log.info("ready", port=8081)
    assert "\x1b[" in terminal.getvalue()
    configure(stream=file, log_format=LogFormat.CONSOLE)
    log.info("ready", port=8081)
    assert "\x1b[" not in file.getvalue()
    assert "port=8081" in file.getvalue()


def test_json_on_a_terminal_if_asked() -> None:
    terminal = Terminal()
    configure(stream=terminal, log_format=LogFormat.JSON)
    log.info("ready")
    assert records(terminal)[0]["event"] == "ready"


def test_below_the_level_nothing_is_formatted(out: io.StringIO) -> None:
    class Untouchable:
        def __str__(self) -> str:
            raise AssertionError("was formatted")

        __repr__ = __str__

    log.debug("detail", value=Untouchable())
    assert not out.getvalue()


def test_an_unknown_level_is_an_error() -> None:
    with pytest.raises(KeyError):
        configure(level="loud")


def test_passwords_and_secret_headers_are_masked(out: io.StringIO) -> None:
    log.info(
        "started",
        url="redis://user:hunter2@h:6379/0",
        headers={"Authorization": "Bearer hunter2", "X-Team": "a", "x-api-key": "hunter2"},
        bearer_token="hunter2",
        error=ValueError("GET http://:hunter2@h/metrics?token=hunter2&a=1 failed"),
        nested=[{"cookie": "hunter2"}],
    )
    assert "hunter2" not in out.getvalue()
    (record,) = records(out)
    assert record["url"] == "redis://user:***@h:6379/0"
    assert record["headers"] == {"Authorization": "***", "X-Team": "a", "x-api-key": "***"}


@pytest.mark.parametrize("log_format", [LogFormat.JSON, LogFormat.CONSOLE])
def test_a_value_cannot_forge_a_record(log_format: LogFormat) -> None:
    out = io.StringIO()
    configure(stream=out, log_format=log_format)
    evil = 'x\n{"event": "forged"}\r\x1b[2J\x85\u2028\u202e'
    log.info("request_refused", id=evil, nested={evil: [evil]})
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().endswith("\n")
    assert not set(out.getvalue().rstrip("\n")) & set("\n\r\x1b\x85\u2028\u202e")


@given(st.text())
def test_no_text_breaks_out_of_its_line(text: str) -> None:
    shown = one_line(text)
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable() or all(
        ord(character) > 0x9F for character in shown if not character.isprintable()
    )
    shown.encode()


def test_a_line_is_made_also_while_the_interpreter_shuts_down() -> None:
    """No codec can be looked up then, and what went wrong last is what people have to read."""
    code = (
        "import codecs, encodings; from async_processor.telemetry.masking import one_line\n"
        "codecs.unregister(encodings.search_function)\n"
        "assert one_line('a\\x1b') == r'a\\x1b'"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_traceback_is_one_line_in_json_and_indented_on_a_console(out: io.StringIO) -> None:
    def fail() -> None:
        try:
            raise ValueError("first\nforged event")
        except ValueError:
            log.exception("request_failed_unexpectedly")

    fail()
    (record,) = records(out)
    assert "ValueError: first" in record["exception"]

    console = io.StringIO()
    configure(stream=console, log_format=LogFormat.CONSOLE)
    fail()
    _, *trace = console.getvalue().rstrip("\n").split("\n")
    assert len(trace) > 2
    assert all(line.startswith("  | ") for line in trace)


def test_a_repeated_warning_goes_out_once_in_ten_seconds(
    out: io.StringIO, clock: ManualClock
) -> None:
    for _ in range(5):
        log.warning("nothing_claimed", queue_name="q", error="different each time")
    assert len(records(out)) == 1
    clock_advance(clock, 10.0)
    log.warning("nothing_claimed", queue_name="q", error="again")
    log.warning("nothing_claimed", queue_name="q", error="again")
    assert [record.get("suppressed") for record in records(out)] == [None, 4]


def test_other_events_other_queues_and_information_are_not_held_back(out: io.StringIO) -> None:
    log.warning("nothing_claimed", queue_name="q")
    log.warning("nothing_claimed", queue_name="r")
    log.error("other", queue_name="q")
    for _ in range(3):
        log.info("started")
    assert len(records(out)) == 6


def test_the_memory_of_repeats_is_bounded(out: io.StringIO) -> None:
    for number in range(3000):
        log.warning("refused", key=str(number))
    log.warning("refused", key="2999")
    assert len(records(out)) == 3000


def test_libraries_warnings_come_out_in_the_same_form(out: io.StringIO) -> None:
    logging.getLogger("asyncio").error("Task exception of %s\nwas never retrieved", "x")
    logging.getLogger("asyncio").info("chatter")
    (record,) = records(out)
    assert record["event"] == "library_message"
    assert record["component"] == "asyncio"
    assert record["level"] == "error"
    assert record["message"] == "Task exception of x\\nwas never retrieved"


def test_a_library_that_logs_badly_harms_nobody(out: io.StringIO) -> None:
    """Emitted directly, since pytest's own handler refuses such a record before ours sees it."""
    for content in (("%d of %d", ("one",), 30), ("between the levels", (), 35)):
        message, arguments, level = content
        record = logging.LogRecord("lib", level, "", 0, message, arguments, None)
        _LibraryRecords().emit(record)
    assert [record["message"] for record in records(out)] == ["%d of %d", "between the levels"]


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://:pw@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://user:pw@h/0", "redis://user:***@h/0"),
        ("https://token@h/x", "https://***@h/x"),
        ("redis://:p@w@h/0", "redis://:***@h/0"),
        ("redis://:p/w@h:1/0", "redis://:***@h:1/0"),
        ("redis+sentinel://u:pw@a:1,b:2/m", "redis+sentinel://u:***@a:1,b:2/m"),
        ("http://h:8000/v1/a@b", "http://h:8000/v1/a@b"),
        ("http://h/?api_key=s&n=1", "http://h/?api_key=***&n=1"),
        ("to http://u:pw@a/ and http://u:pw@b/", "to http://u:***@a/ and http://u:***@b/"),
        ("no url: a@b", "no url: a@b"),
    ],
)
def test_mask_url(url: str, masked: str) -> None:
    assert mask_url(url) == masked


@pytest.mark.parametrize(
    "name",
    ["Authorization", "proxy-authorization", "Cookie", "password", "X-Api-Key", "api_key",
     "bearer_token", "client_secret", "X-Auth-Token", "token"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["queue_name", "tokens", "input_tokens", "keys", "key", "author"])
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret(name)


@given(st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.lists(st.text())))
def test_whatever_is_logged_can_be_presented(event: dict[str, Any]) -> None:
    json.dumps(presentable(None, "info", event)).encode()


def clock_advance(clock: ManualClock, seconds: float) -> None:
    clock._monotonic += seconds


def test_a_full_disk_loses_records_and_nothing_else() -> None:
    class FullDisk(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

        def flush(self) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")

    disk = FullDisk()
    configure(log_format=LogFormat.JSON, stream=disk)
    log = get_logger("x")
    log.info("lost")
    disk.full = False
    log.info("written")
    assert [json.loads(line)["event"] for line in disk.getvalue().splitlines()] == ["written"]
