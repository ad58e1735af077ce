"""Whose quota a request counts under, how large it is, and whom a full quota lets look again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.quota import waiting as waiting_module
from async_processor.admission.quota.starts import identity
from async_processor.admission.quota.tenants import Tenants
from async_processor.admission.quota.waiting import LATELY, Waiting
from async_processor.testing.candidates import candidate
from async_processor.wire.envelope import read
from async_processor.wire.tenants import LONGEST_NAME, canonical


def tenants(default: int | None = None, **limits: int) -> Tenants:
    return Tenants("userid", default=default, limits=limits)


@pytest.mark.parametrize(
    ("tenant", "limit"),
    [
        ("a", 1),
        ("batch-eu", 3),
        ("batch-us", 2),
        ("batch", 9),
        ("", 9),
        ("x.y", 4),
        ("xzy", 9),
        ("[q]1", 5),
        ("q1", 9),
    ],
)
def test_a_name_comes_before_patterns_and_the_longest_pattern_first(
    tenant: str, limit: int
) -> None:
    limits = {"a": 1, "batch-*": 2, "batch-e*": 3, "x.*": 4, "[q]*": 5, "?*": 8}
    found = Tenants("userid", default=9, limits=limits)
    assert found.limit(tenant) == limit


def test_whom_nothing_names_has_no_limit() -> None:
    assert tenants(a=1).limit("b") is None
    assert Tenants("userid", default=None, limits={"*": 3}).limit("b") == 3


def test_a_long_name_has_the_limit_that_it_is_given() -> None:
    long = "x" * (LONGEST_NAME + 1)
    found = tenants(default=1, **{long: 5})
    assert found.limit(found.of(candidate(metadata={"userid": long}).envelope.request)) == 5


def test_the_attribute_names_the_tenant() -> None:
    found = Tenants("team", default=1, limits={})
    assert found.of(candidate(metadata={"team": "x", "userid": "y"}).envelope.request) == "x"
    assert found.of(candidate().envelope.request) == ""


@given(st.text())
def test_names_stay_short_and_apart(name: str) -> None:
    assert len(canonical(name).encode(errors="surrogatepass")) <= LONGEST_NAME
    long = name + "x" * LONGEST_NAME
    assert canonical(long) != canonical(long + "y")
    assert len(canonical(long)) <= LONGEST_NAME


def test_every_attempt_at_a_request_has_one_identity() -> None:
    first = candidate("r", token="t", seq=3).envelope
    again = read(first.rewritten(retry_count=2, request_queue_name="q"))
    assert identity(again) == identity(first)
    others = [
        candidate("s", token="t", seq=3),
        candidate("r", token="u", seq=3),
        candidate("r", token="t", seq=4),
        candidate("r", token="t", seq=3, deadline=1e9),
        candidate("r", token="t", seq=3, payload={"prompt": "other"}),
        candidate("r", token="t", seq=3, endpoint="/v1/other"),
    ]
    identities = {identity(other.envelope) for other in others}
    assert len(identities) == len(others)
    assert identity(first) not in identities


def test_a_full_tenant_may_look_again_after_its_time_and_once() -> None:
    waiting = Waiting()
    waiting.full("a", now=10.0, look_after=2.0)
    waiting.full("a", now=11.0, look_after=2.0)
    waiting.full("b", now=11.0, look_after=0.5)
    assert waiting.due(11.0) == []
    assert waiting.due(12.0) == ["b", "a"]
    assert waiting.due(99.0) == []


def test_who_was_over_its_quota_lately_is_told_the_latest_first() -> None:
    waiting = Waiting()
    for now, tenant in ((1.0, "a"), (2.0, "b"), (3.0, "a")):
        waiting.full(tenant, now, look_after=1.0)
    assert waiting.over_quota(4.0) == ["a", "b"]
    assert waiting.over_quota(2.5 + LATELY) == ["a"]
    assert waiting.over_quota(4.0 + LATELY) == []


def test_many_tenants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "MOST", 3)
    waiting = Waiting()
    for number in range(10):
        waiting.full(f"t-{number}", now=0.0, look_after=1.0)
    assert waiting.over_quota(0.0) == ["t-9", "t-8", "t-7"]
    assert len(waiting.due(1.0)) == 3
