"""Compatibility: what the Go producers write is read whole and stored again without loss, and
what we write is what the Go readers expect.

The golden requests are what `encoding/json` makes of the Go implementation's structs: fields in
their order, empty ones left out where the struct says `omitempty`, `<`, `>` and `&` escaped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from async_processor.wire import result
from async_processor.wire.envelope import Envelope, read, score
from async_processor.wire.request import RequestKind
from async_processor.wire.result import ErrorCode, Result, Timings, error_payload

GOLDEN = Path(__file__).parent / "golden"
REQUESTS = sorted(path.stem for path in (GOLDEN / "requests").iterdir())
DEADLINE = 1764045130

GO_RESULT_FIELDS = {"id", "status_code", "payload", "error_code", "error_message", "request_token"}


def _request(name: str) -> bytes:
    return (GOLDEN / "requests" / f"{name}.json").read_bytes()


def _expected(name: str, **fields: Any) -> None:
    envelope = read(_request(name))
    assert {field: getattr(envelope, field) for field in fields} == fields


def test_every_golden_request_is_tested() -> None:
    assert REQUESTS == [
        "plain",
        "plain_minimal",
        "plain_retried",
        "pubsub",
        "pubsub_minimal",
        "redis",
        "redis_minimal",
        "redis_stored_payload",
    ]


def test_a_plain_request() -> None:
    _expected(
        "plain",
        kind=RequestKind.PLAIN,
        bare=False,
        retry_count=0,
        request_token="5f1d7a84db00d2fce00b31a7fc73224f",
        request_queue_name="request-sortedset",
        result_queue_name="result-list",
        enqueue_seq=1,
        score=DEADLINE + 1 / 2097152,
    )
    request = read(_request("plain")).request
    assert request.id == "plain-1"
    assert (request.created, request.deadline) == (1764044000, DEADLINE)
    assert request.payload == rb'{"model":"m1","prompt":"a \u003c b \u0026 c"}'
    assert request.metadata == {"userid": "team-a"}
    assert request.headers == {"x-trace": "1"}
    assert (request.endpoint, request.model) == ("/v1/chat/completions", "m1")


def test_a_plain_request_without_internal_fields() -> None:
    _expected(
        "plain_minimal",
        kind=RequestKind.PLAIN,
        request_token="",
        result_queue_name="",
        enqueue_seq=0,
        score=float(DEADLINE),
    )


def test_a_request_that_the_go_processor_has_tried_before() -> None:
    _expected(
        "plain_retried",
        retry_count=2,
        queue_id="q-1",
        enqueue_seq=42,
        labels={"classification": "reserved", "tier": "batch"},
    )


def test_a_redis_request() -> None:
    _expected(
        "redis",
        kind=RequestKind.REDIS,
        retry_count=1,
        request_queue_name="per-msg-rq",
        result_queue_name="per-msg-resq",
        correlation_id="tc",
        score=score(DEADLINE, 2097151),
    )


def test_a_redis_request_names_its_queues_itself_where_nothing_is_settled() -> None:
    _expected("redis_minimal", request_queue_name="rq", result_queue_name="resq")


def test_a_redis_request_with_a_stored_payload() -> None:
    _expected(
        "redis_stored_payload",
        payload_ref="request-payload:redis-3:0f343b0931126a20f133d67c2b018a3b",
    )
    assert read(_request("redis_stored_payload")).request.payload is None


def test_a_pubsub_request() -> None:
    _expected(
        "pubsub",
        kind=RequestKind.PUBSUB,
        correlation_id="corr-123",
        result_queue_name="per-msg-results",
    )


def test_a_pubsub_request_is_correlated_by_its_own_id_where_nothing_is_settled() -> None:
    _expected("pubsub_minimal", correlation_id="pub-abc", result_queue_name="")


@pytest.mark.parametrize("name", REQUESTS)
def test_stored_again_it_differs_in_its_routing_only(name: str) -> None:
    body = _request(name)
    again = read(body).rewritten(retry_count=5, request_queue_name="its-queue")
    before, after = json.loads(body), json.loads(again)
    before["internal"] |= {"retry_count": 5, "request_queue_name": "its-queue"}
    assert after == before
    assert body[body.index(b'"data":') :] == again[again.index(b'"data":') :]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_go_processor_can_read_what_we_store(name: str) -> None:
    stored = json.loads(read(_request(name)).rewritten(retry_count=1, request_queue_name="q"))
    assert list(stored) == ["internal", "request_kind", "data"]
    assert stored["request_kind"] in ("plain", "redis", "pubsub")


def test_a_bare_request_is_stored_as_the_go_processor_needs_it() -> None:
    bare = b'{"id": "r-1", "deadline": 5, "payload": {}, "result_queue_name": "mine"}'
    stored = read(bare).rewritten(retry_count=1, request_queue_name="q")
    assert json.loads(stored) == {
        "internal": {"retry_count": 1, "request_queue_name": "q"},
        "request_kind": "plain",
        "data": json.loads(bare),
    }
    assert read(stored).result_queue_name == "mine"


RESULTS = {
    "answered": Result(
        id="r-1",
        status_code=200,
        payload='{"text":"hi"}',
        request_token="0f343b0931126a20f133d67c2b018a3b",
    ),
    "answered_with_an_error": Result(id="r-2", status_code=404, payload="not found"),
    "expired": Result(
        id="r-3",
        payload=error_payload("deadline exceeded"),
        error_code=ErrorCode.DEADLINE_EXCEEDED,
        error_message="deadline exceeded",
    ),
    "with_our_additions": Result(
        id="r-4",
        status_code=200,
        payload="ok",
        request_token="t-1",
        metadata={"userid": "team-a"},
        attempts=2,
        timings=Timings(queued_ms=12, inference_ms=345),
        dropped_reason="rejected-ttl-expired",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_as_it_lies_on_the_queue(name: str) -> None:
    golden = (GOLDEN / "results" / f"{name}.json").read_bytes()
    assert result.encode(RESULTS[name]) == golden
    assert result.decode(golden) == RESULTS[name]


@pytest.mark.parametrize("name", RESULTS)
def test_a_go_reader_finds_its_fields_with_the_types_it_needs(name: str) -> None:
    fields = json.loads(result.encode(RESULTS[name]))
    assert isinstance(fields["id"], str)
    assert isinstance(fields["payload"], str)
    assert ("status_code" in fields) is (RESULTS[name].status_code is not None)
    assert ("error_code" in fields) is ("status_code" not in fields)
    for field in GO_RESULT_FIELDS - {"status_code"} & set(fields):
        assert isinstance(fields.get(field, ""), str)


def test_a_result_of_the_go_processor_can_be_read() -> None:
    assert result.decode(b'{"id":"legacy","payload":"done"}') == Result(id="legacy", payload="done")


def test_an_envelope_knows_its_own_score() -> None:
    assert isinstance(read(_request("redis")), Envelope)
    scores = [score(DEADLINE, seq) for seq in (-1, 0, 1, 2, 2097150, 2097151, 2097152, 2**60)]
    assert scores[0] == scores[1] == DEADLINE
    assert scores[1] < scores[2] < scores[3] < scores[4] < scores[5] < DEADLINE + 1
    assert scores[5] == scores[6] == scores[7]
