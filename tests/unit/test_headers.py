"""Which headers a call carries: the rules of the contract, and that no message can get round them.

The property at the end is the important one: whatever a message writes into its headers and its
metadata, nothing leaves its line, and nothing speaks for the operator or the connection.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.errors import ConfigurationError
from async_processor.inference.headers import FAIRNESS, OBJECTIVE, OLDER_OBJECTIVE, HeaderRules
from async_processor.wire.envelope import InvalidMessage
from async_processor.wire.request import Request

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def rules(**options: Any) -> HeaderRules:
    return HeaderRules(**{"configured": {}, **options})


def sent(
    rules: HeaderRules,
    headers: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> dict[str, str]:
    request = Request(
        id="r", deadline=1.0, payload=b"{}", headers=headers or {}, metadata=metadata or {}
    )
    return rules.for_request(request)


def test_a_plain_request_sends_json() -> None:
    assert sent(rules()) == {"Content-Type": "application/json"}


def test_the_objective_goes_out_under_both_names() -> None:
    headers = sent(rules(objective="batch"), {OBJECTIVE: "mine", OLDER_OBJECTIVE.upper(): "mine"})
    assert headers[OBJECTIVE] == headers[OLDER_OBJECTIVE] == "batch"
    assert "mine" not in headers.values()


def test_a_renamed_objective_header_still_has_the_older_name_beside_it() -> None:
    headers = sent(rules(objective="batch", objective_header="x-goal"), {"X-Goal": "mine"})
    assert headers["x-goal"] == headers[OLDER_OBJECTIVE] == "batch"
    assert "X-Goal" not in headers


@pytest.mark.parametrize("off", [{"objective": ""}, {"objective": "b", "objective_header": ""}])
def test_no_objective_and_none_by_the_message_either(off: dict[str, str]) -> None:
    headers = sent(rules(**off), {OBJECTIVE: "mine", OLDER_OBJECTIVE: "mine", "X-A": "1"})
    assert headers == {"X-A": "1", "Content-Type": "application/json"}


def test_a_message_sends_headers() -> None:
    assert sent(rules(), {"X-Team": " a "})["X-Team"] == "a"


@pytest.mark.parametrize("name", ["content-type", "Content-Type", "CONTENT-TYPE"])
def test_a_messages_content_type_replaces_the_default_in_any_case(name: str) -> None:
    assert sent(rules(), {name: "text/plain"}) == {name: "text/plain"}


@pytest.mark.parametrize(
    "name",
    [
        "Host", "Content-Length", "Transfer-Encoding", "connection", "Keep-Alive", "TE", "Trailer",
        "Upgrade", "Proxy-Authorization", "Proxy-Connection", "Expect", "Accept-Encoding",
        FAIRNESS.upper(), "X-Prio", "", "X A", "X:A", "X-\u00e4", "X-A\r\nX-B",
    ],
)  # fmt: skip
def test_what_a_message_may_never_set(name: str) -> None:
    headers = sent(rules(priority_header="x-prio"), {name: "x"})
    assert headers == {"Content-Type": "application/json"}


@pytest.mark.parametrize("value", ["a\r\nX-Evil: b", "a\x00", "a\x7f", "a\tb", "a\x85", "\ud800"])
def test_a_value_with_a_control_character_is_left_out(value: str) -> None:
    assert "X-A" not in sent(rules(), {"X-A": value})


def test_what_the_connection_header_names_is_hop_by_hop_as_well() -> None:
    headers = sent(rules(), {"Connection": "close, X-Private", "x-private": "1", "X-Public": "2"})
    assert headers == {"X-Public": "2", "Content-Type": "application/json"}


def test_the_operators_headers_win_in_any_case_of_letters() -> None:
    own = rules(configured={"Authorization": "Bearer own", "content-type": "application/x-own"})
    headers = sent(own, {"AUTHORIZATION": "Bearer theirs", "Content-Type": "text/plain"})
    assert headers == {"Authorization": "Bearer own", "content-type": "application/x-own"}


def test_a_configured_header_without_a_value_leaves_the_messages_alone() -> None:
    assert sent(rules(configured={"Authorization": ""}), {"authorization": "t"})["authorization"]


def test_a_configured_header_beats_the_queues_objective_and_the_tenant() -> None:
    own = rules(configured={OBJECTIVE.upper(): "fixed", FAIRNESS: "all"}, objective="batch")
    headers = sent(own, metadata={"userid": "team-a"})
    assert headers[OBJECTIVE.upper()] == "fixed"
    assert OBJECTIVE not in headers
    assert headers[FAIRNESS] == "all"


@pytest.mark.parametrize("fault", ["Content-Length", "Connection", "X A", "Transfer-Encoding"])
def test_a_configured_name_that_cannot_be_sent_stops_the_start(fault: str) -> None:
    with pytest.raises(ConfigurationError, match=r"inference\.headers"):
        rules(configured={fault: "1"})


def test_a_configured_value_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as raised:
        rules(configured={"Authorization": "hunter2\n"})
    assert "hunter2" not in str(raised.value)


def test_allowed_headers_narrow_what_a_message_may_send() -> None:
    narrow = rules(allowed=["X-Team-*", "x-one"], configured={"Authorization": "own"})
    headers = sent(narrow, {"x-team-a": "1", "X-ONE": "2", "x-one-more": "3", "Content-Type": "t"})
    assert headers == {
        "x-team-a": "1",
        "X-ONE": "2",
        "Content-Type": "application/json",
        "Authorization": "own",
    }


def test_an_empty_list_allows_none() -> None:
    assert sent(rules(allowed=[]), {"X-A": "1"}) == {"Content-Type": "application/json"}


def test_the_limit_counts_what_a_message_adds() -> None:
    bounded = rules(header_bytes=100, configured={"Authorization": "x" * 500})
    assert sent(bounded, {"X-A": "\u00e4" * 46})["X-A"]  # 3 + 92 + 4 bytes
    with pytest.raises(InvalidMessage, match="at most 100"):
        sent(bounded, {"X-A": "\u00e4" * 47})


def test_what_is_left_out_does_not_count() -> None:
    assert sent(rules(header_bytes=10), {"Host": "x" * 500})


def test_the_tenant_replaces_the_callers_own_fairness_header() -> None:
    headers = sent(rules(), {FAIRNESS.title(): "other"}, {"userid": "team-a"})
    assert headers == {FAIRNESS: "team-a", "Content-Type": "application/json"}


def test_fairness_under_other_names() -> None:
    renamed = rules(fairness_header="X-Tenant", fairness_attribute="team")
    headers = sent(renamed, {"x-tenant": "other"}, {"team": "a", "userid": "b"})
    assert headers == {"X-Tenant": "a", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    "options", [{"fairness_header": ""}, {"fairness_attribute": ""}, {"fairness_attribute": "no"}]
)
def test_without_fairness_or_tenant_there_is_no_header(options: dict[str, str]) -> None:
    headers = sent(rules(**options), {FAIRNESS: "other"}, {"userid": "team-a"})
    assert headers == {"Content-Type": "application/json"}


@pytest.mark.parametrize("tenant", ["", " a", "a\r\nb", "x" * 257, "\u00e4" * 129])
def test_a_tenant_that_is_no_short_header_value_is_left_out(tenant: str) -> None:
    assert FAIRNESS not in sent(rules(), metadata={"userid": tenant})


def test_a_tenant_of_256_bytes_is_sent() -> None:
    assert sent(rules(), metadata={"userid": "\u00e4" * 128})[FAIRNESS] == "\u00e4" * 128


def test_the_metadatas_trace_context_replaces_the_headers() -> None:
    headers = sent(
        rules(),
        {"Traceparent": "theirs", "TraceState": "theirs"},
        {"traceparent": TRACE, "tracestate": "a=1"},
    )
    assert headers == {
        "traceparent": TRACE,
        "tracestate": "a=1",
        "Content-Type": "application/json",
    }


def test_a_foreign_trace_state_does_not_stay_with_a_new_parent() -> None:
    headers = sent(rules(), {"tracestate": "theirs"}, {"traceparent": TRACE})
    assert "tracestate" not in headers


@pytest.mark.parametrize("state", ["a=1\n", "x" * 513])
def test_an_illegal_trace_state_is_left_out_alone(state: str) -> None:
    headers = sent(rules(), metadata={"traceparent": TRACE, "tracestate": state})
    assert headers == {"traceparent": TRACE, "Content-Type": "application/json"}


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "nonsense",
        TRACE + "\r\nX: y",
        TRACE + "-\x01",
        TRACE + "-" + "x" * 200,
        "ff" + TRACE[2:],
    ],
)
def test_an_illegal_trace_parent_is_left_out(trace: str) -> None:
    assert "traceparent" not in sent(rules(), metadata={"traceparent": trace, "tracestate": "a=1"})


def test_the_rules_are_not_changed_by_what_becomes_of_a_calls_headers() -> None:
    own = rules()
    for metadata in ({}, {"userid": "a"}):
        usual = sent(own, metadata=metadata)
        sent(own, metadata=metadata)["Content-Type"] = "spoilt"
        assert sent(own, metadata=metadata) == usual


def test_the_rules_of_many_queues_remember_no_tenants_each() -> None:
    """A queue has rules for each lane, and tenants may be any number."""
    many = [rules() for _ in range(16)]
    tracemalloc.start()
    for each in many:
        for number in range(1024):
            sent(each, metadata={"userid": f"tenant-{number}"})
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 1024 * 1024


hostile_names = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["Host", "hOST", "Content-Length", "Authorization", "authorization", "connection", "X-Own",
         OBJECTIVE, OLDER_OBJECTIVE, FAIRNESS, FAIRNESS.upper(), "Content-Type", "x-a"]
    ),
)  # fmt: skip
hostile_values = st.one_of(
    st.text(max_size=60), st.sampled_from(["a\r\nX: y", "x-own", "\n", "ok"])
)
hostile_metadata = st.dictionaries(
    st.sampled_from(["userid", "traceparent", "tracestate", "other"]),
    st.one_of(
        hostile_values,
        st.just(TRACE),
        st.text(max_size=5).map(f"{TRACE}-{{}}".format),
        st.text(min_size=250, max_size=300),
    ),
)


@given(headers=st.dictionaries(hostile_names, hostile_values), metadata=hostile_metadata)
def test_nothing_a_message_writes_gets_round_the_rules(
    headers: dict[str, str], metadata: dict[str, str]
) -> None:
    own = rules(configured={"Authorization": "Bearer own", "X-Own": "own"}, objective="batch")
    result = sent(own, headers, metadata)
    names = [name.lower() for name in result]
    assert len(set(names)) == len(names)  # nothing twice in another case of letters
    assert not {"host", "content-length", "connection", "accept-encoding"} & set(names)
    assert result["Authorization"] == "Bearer own"
    assert result["X-Own"] == "own"
    assert result[OBJECTIVE] == result[OLDER_OBJECTIVE] == "batch"
    assert result.get(FAIRNESS) in (None, metadata.get("userid"))
    wire = "".join(f"{name}: {value}\r\n" for name, value in result.items()).encode()
    lines = wire.split(b"\r\n")[:-1]
    assert len(lines) == len(result)
    assert not any(byte < 0x20 or byte == 0x7F for line in lines for byte in line)


def test_a_lane_sets_its_objective_under_both_names_and_its_priority() -> None:
    rules = HeaderRules(
        configured={}, objective="urgent", priority_header="x-priority", priority="0"
    )
    forged = {"X-Priority": "9", "x-llm-d-inference-objective": "mine"}
    headers = rules.for_request(Request(id="r", deadline=1, payload=b"{}", headers=forged))
    assert headers["x-priority"] == "0"
    assert headers["x-llm-d-inference-objective"] == "urgent"
    assert headers["x-gateway-inference-objective"] == "urgent"
    assert "9" not in headers.values()
