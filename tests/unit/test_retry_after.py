"""`Retry-After` as servers write it, and as they get it wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.inference import retry_after

NOW = 1_764_000_000.0  # Mon, 24 Nov 2025 16:00:00 GMT


def read(value: str | None, date: str | None = None) -> float | None:
    return retry_after.read(value, date=date, now=NOW)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0.0), ("7", 7.0), (" 120 ", 120.0), ("1.5", 1.5), ("9999999999", 9999999999.0)],
)
def test_seconds(value: str, seconds: float) -> None:
    assert read(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 24 Nov 2025 16:01:00 GMT",
        "Mon, 24 Nov 2025 16:01:00 -0000",
        "Mon, 24 Nov 2025 17:01:00 +0100",
        "Monday, 24-Nov-25 16:01:00 GMT",
        "Mon Nov 24 16:01:00 2025",
    ],
)
def test_a_date_is_a_wait_from_now(value: str) -> None:
    assert read(value) == 60.0


def test_a_date_is_judged_by_the_answers_own_clock() -> None:
    """A server whose clock is a day off asks for the minute that it means."""
    date = "Sun, 23 Nov 2025 10:00:00 GMT"
    assert read("Sun, 23 Nov 2025 10:01:00 GMT", date) == 60.0


def test_an_unreadable_date_header_falls_back_to_our_clock() -> None:
    assert read("Mon, 24 Nov 2025 16:01:00 GMT", "yesterday") == 60.0


def test_a_date_in_the_past_means_at_once() -> None:
    assert read("Mon, 24 Nov 2025 15:00:00 GMT") == 0.0


@pytest.mark.parametrize(
    "value",
    [
        None, "", "-5", "+5", "soon", "inf", "nan", "1e400", "5 s", "5,6", "\u0665",
        "9" * 5000, "Mon, 99 Nov 2025 16:01:00 GMT",
    ],
)  # fmt: skip
def test_nonsense_is_ignored(value: str | None) -> None:
    assert read(value) is None


@given(st.text())
def test_anything_gives_a_finite_wait_or_none(value: str) -> None:
    wait = read(value, value)
    assert wait is None or 0 <= wait < float("inf")
