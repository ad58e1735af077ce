"""Proves how deadlines are read: every form people write, and a clear refusal of the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from async_processor.producer import Deadline, DeadlinePassed, InvalidSubmission
from async_processor.producer.deadline import unix_deadline

NOW = 1_764_000_000.25


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1_764_003_600, 1_764_003_600),
        (1_764_003_600.5, 1_764_003_601),
        ("1764003600", 1_764_003_600),
        ("1h", 1_764_003_601),
        ("1h30m", 1_764_005_401),
        ("750ms", 1_764_000_001),
        (timedelta(minutes=1), 1_764_000_061),
        (datetime(2025, 11, 24, 17, 0, tzinfo=UTC), 1_764_003_600),
        ("2025-11-24T18:00:00+01:00", 1_764_003_600),
    ],
)
def test_every_form_means_whole_unix_seconds(written: Deadline, meant: int) -> None:
    assert unix_deadline(written, NOW) == meant


@pytest.mark.parametrize("written", [NOW, NOW - 0.001, "0s", timedelta(0), 1.0, -5, -(10**400)])
def test_a_deadline_that_has_passed_is_refused(written: Deadline) -> None:
    with pytest.raises(DeadlinePassed, match="passed"):
        unix_deadline(written, NOW)


def test_a_duration_without_its_unit_is_recognised() -> None:
    with pytest.raises(DeadlinePassed, match="for a duration write 3600s"):
        unix_deadline(3600, NOW)


@pytest.mark.parametrize(
    "written",
    ["", "soon", "nan", "inf", 1_764_003_600_000, 10**400, float("nan"), True, None, [1]],
)
def test_what_is_no_deadline_is_refused_with_the_legal_forms(written: Deadline) -> None:
    with pytest.raises(InvalidSubmission, match="write a duration") as refusal:
        unix_deadline(written, NOW)
    assert refusal.value.field == "deadline"
    assert not isinstance(refusal.value, DeadlinePassed)


def test_a_time_without_a_zone_is_ambiguous_and_refused() -> None:
    with pytest.raises(InvalidSubmission, match="no time zone"):
        unix_deadline(datetime(2099, 1, 1), NOW)
    with pytest.raises(InvalidSubmission, match="no time zone"):
        unix_deadline("2099-01-01T00:00:00", NOW)
