"""The names that producers and the processor agree on, and where a result may not go."""

from __future__ import annotations

import pytest

from async_processor.wire import names

QUEUES = {"request-sortedset", "my-queue", "jobs{llm}", "retry-sortedset", "dead-letter-list"}
RESERVED = names.reserved(QUEUES)


def test_keys_are_named_as_in_the_contract() -> None:
    assert names.active_key("r-1") == "request-active:r-1"
    assert names.cancel_key("r-1") == "request-cancel:r-1"
    assert names.payload_key("r-1", "t") == "request-payload:r-1:t"
    assert names.mailbox("r-1", "t") == "request-result:r-1:t"


@pytest.mark.parametrize(
    "name",
    [
        *sorted(QUEUES),
        "{q}:claims",
        "{anything",
        "quota:team-a",
        "request-active:r-1",
        "request-result:r-1:t",
        "request-",
        "jobs{llm}:leases",
        "jobs{llm}:lot:a",
        "jobs{llm}:claimed",
        "my-queue:claimed",
        "my-queue:claim-owners",
        "my-queue:claims-idx",
    ],
)
def test_a_result_may_not_go_there(name: str) -> None:
    assert names.result_queue_fault(name, RESERVED)


@pytest.mark.parametrize(
    "name",
    [
        *("result-list", "results:{q}", "my-queue-2", "requests", "quota"),
        *("jobs{llm}-results", "my-queue:results"),
    ],
)
def test_a_result_may_go_there(name: str) -> None:
    assert names.result_queue_fault(name, RESERVED) == ""


@pytest.mark.parametrize(
    ("name", "request_id", "token", "own"),
    [
        ("request-result:r-1:t", "r-1", "t", True),
        ("request-result:r-2:t", "r-1", "t", False),
        ("request-result:r-1:u", "r-1", "t", False),
        ("request-result:r-1:", "r-1", "", False),
        ("request-result::t", "", "t", False),
        ("result-list", "r-1", "t", False),
    ],
)
def test_only_its_own_mailbox_is_a_requests_mailbox(
    name: str, request_id: str, token: str, own: bool
) -> None:
    assert names.is_mailbox(name, request_id, token) is own
