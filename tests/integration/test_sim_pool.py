"""The simulated pool over real HTTP: both APIs, streams, metrics, limits, faults and its end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from async_processor.sim.arrivals import Rhythm
from async_processor.sim.engine import EngineSettings
from async_processor.sim.flow_control import Mode
from async_processor.sim.pool import SimulatedPool
from async_processor.sim.traffic import ChatSettings, InteractiveTraffic
from async_processor.testing.eventually import eventually

FAST = EngineSettings(step_seconds=0.001)
ONE_SLOT = EngineSettings(max_num_seqs=1, step_seconds=0.002, max_model_len=16_000)
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:
        yield session


@pytest.fixture
async def instant() -> AsyncIterator[SimulatedPool]:
    async with SimulatedPool(pods=2, latency=0) as pool:
        yield pool


async def complete(client: aiohttp.ClientSession, url: str, **fields: Any) -> tuple[int, Any]:
    body = {"model": "sim", "prompt": "hi"} | fields
    async with client.post(f"{url}/v1/completions", json=body) as response:
        return response.status, await response.json()


Samples = dict[str, list[tuple[dict[str, str], float]]]


async def scrape(client: aiohttp.ClientSession, url: str) -> tuple[Samples, dict[str, str]]:
    """Samples by name, and types by family, as a Prometheus client reads them."""
    async with client.get(url) as response:
        assert response.status == 200
        page = await response.text()
    samples: Samples = {}
    types: dict[str, str] = {}
    for family in text_string_to_metric_families(page):
        types[family.name] = family.type
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples, types


async def gauge(client: aiohttp.ClientSession, url: str, name: str) -> float:
    samples, _ = await scrape(client, url)
    [(_, value)] = samples[name]
    return value


# The APIs


@pytest.mark.parametrize("engine", [FAST, None], ids=["model", "instant"])
async def test_both_apis_answer_through_router_and_pod(
    client: aiohttp.ClientSession, engine: EngineSettings | None
) -> None:
    latency = None if engine else 0
    async with SimulatedPool(pods=2, engine=engine, latency=latency) as pool:
        for url in (pool.url, *pool.pod_urls):
            status, answer = await complete(client, url, max_tokens=5, user="r-1")
            assert status == 200
            assert answer["id"] == "cmpl-r-1"
            assert answer["object"] == "text_completion"
            assert answer["usage"]["completion_tokens"] == 5
            chat = {"messages": HI, "max_tokens": 5}
            async with client.post(f"{url}/v1/chat/completions", json=chat) as response:
                assert response.headers["Content-Type"].startswith("application/json")
                assert (await response.json())["choices"][0]["message"]["role"] == "assistant"
        assert pool.ledger.calls == {"r-1": 3}
        assert pool.ledger.answers == {"r-1": 3}
        assert pool.ledger.total == 6


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_brings_every_token_then_usage_then_the_end(
    client: aiohttp.ClientSession, path: str
) -> None:
    body = {
        "prompt": "hi",
        "messages": HI,
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with (
        SimulatedPool(engine=FAST) as pool,
        client.post(pool.url + path, json=body) as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        events = (await response.text()).strip().split("\n\n")
    assert events.pop() == "data: [DONE]"
    bodies = [json.loads(event.removeprefix("data: ")) for event in events]
    assert bodies.pop()["usage"]["completion_tokens"] == 7
    assert len(bodies) == 7
    assert bodies[-1]["choices"][0]["finish_reason"] == "length"


async def test_models_and_health(client: aiohttp.ClientSession, instant: SimulatedPool) -> None:
    for url in (instant.url, *instant.pod_urls):
        async with client.get(f"{url}/v1/models") as response:
            assert (await response.json())["data"][0]["id"] == "sim"
        async with client.get(f"{url}/health") as response:
            assert response.status == 200
        async with client.get(f"{url}/nowhere") as response:
            assert response.status == 404


async def test_a_wrong_call_gets_an_error_body(client: aiohttp.ClientSession) -> None:
    async with SimulatedPool(engine=FAST, strict_model=True) as pool:
        for fields, expected in (
            ({"prompt": None}, 400),
            ({"max_tokens": 100_000}, 400),
            ({"model": "other"}, 404),
        ):
            status, answer = await complete(client, pool.url, **fields)
            assert status == expected
            assert answer["error"]["code"] == expected


async def test_the_router_spreads_calls_over_the_pods(client: aiohttp.ClientSession) -> None:
    async with SimulatedPool(pods=2, latency=600) as pool:
        calls = [asyncio.create_task(complete(client, pool.url)) for _ in range(10)]
        await eventually(lambda: _true(sum(pod.load.running for pod in pool.pods) == 10))
        assert [pod.load.running for pod in pool.pods] == [5, 5]
        await _cancel(calls)


# Metrics


async def test_a_pods_metrics_have_vllms_names_types_and_labels(
    client: aiohttp.ClientSession,
) -> None:
    async with SimulatedPool(engine=FAST) as pool:
        await complete(client, pool.url, max_tokens=4)
        samples, types = await scrape(client, pool.pod_metrics_urls[0])
    for name, kind in (
        ("num_requests_running", "gauge"),
        ("num_requests_waiting", "gauge"),
        ("num_requests_waiting_by_reason", "gauge"),
        ("kv_cache_usage_perc", "gauge"),
        ("num_preemptions", "counter"),
        ("admission_rejections", "counter"),
        ("time_to_first_token_seconds", "histogram"),
        ("inter_token_latency_seconds", "histogram"),
        ("request_queue_time_seconds", "histogram"),
        ("e2e_request_latency_seconds", "histogram"),
    ):
        assert types[f"vllm:{name}"] == kind
    labels = {"engine": "0", "model_name": "sim"}
    assert samples["vllm:num_requests_running"] == [(labels, 0.0)]
    assert samples["vllm:num_preemptions_total"] == [(labels, 0.0)]
    assert samples["vllm:time_to_first_token_seconds_count"] == [(labels, 1.0)]
    assert samples["vllm:inter_token_latency_seconds_count"] == [(labels, 3.0)]
    reasons = [labels["reason"] for labels, _ in samples["vllm:num_requests_waiting_by_reason"]]
    assert sorted(reasons) == ["capacity", "deferred"]


async def test_the_routers_metrics_show_a_saturated_pool_under_old_and_new_names(
    client: aiohttp.ClientSession,
) -> None:
    async with SimulatedPool(name="p", pods=1, engine=ONE_SLOT) as pool:
        body = {"max_tokens": 15_000}
        calls = [asyncio.create_task(complete(client, pool.url, **body)) for _ in range(11)]
        await eventually(lambda: _true(pool.pods[0].load.waiting == 10))
        samples, types = await scrape(client, pool.metrics_url)
        await _cancel(calls)
    saturation = samples["llm_d_epp_flow_control_pool_saturation"]
    assert {labels["stage"] for labels, _ in saturation} == {"decode", "effective"}
    assert all(labels["inference_pool"] == "p" and value >= 2 for labels, value in saturation)
    [(labels, value)] = samples["inference_extension_flow_control_pool_saturation"]
    assert labels == {"inference_pool": "p"}
    assert value >= 2
    for name in (
        "llm_d_epp_flow_control_queue_size",
        "inference_extension_flow_control_queue_size",
    ):
        [(labels, value)] = samples[name]
        assert labels["inference_pool"] == "p"
        assert value == 0
    assert samples["llm_d_epp_per_endpoint_queue_size"] == [
        ({"name": "p", "model_server_endpoint": "p-0"}, 10)
    ]
    assert samples["inference_pool_per_pod_queue_size"] == [
        ({"name": "p", "model_server_pod": "p-0"}, 10)
    ]
    assert samples["llm_d_epp_ready_endpoints"] == [({"name": "p"}, 1)]
    assert samples["inference_pool_ready_pods"] == [({"name": "p"}, 1)]
    assert set(types.values()) == {"gauge"}


# Limits


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_frees_its_slot_at_once(
    client: aiohttp.ClientSession, stream: bool
) -> None:
    async with SimulatedPool(engine=ONE_SLOT) as pool:
        call = asyncio.create_task(
            complete(client, pool.url, max_tokens=15_000, stream=stream, user="gone")
        )
        await eventually(lambda: _true(pool.pods[0].load.running == 1))
        await _cancel([call])
        # Its answer would take 30 s.
        await eventually(lambda: _true(pool.pods[0].load.running == 0), within=20)
        assert pool.pods[0].load.kv_usage == 0
        assert pool.ledger.calls == {"gone": 1}
        assert not pool.ledger.answers


async def test_over_the_queue_limit_a_pod_answers_503_without_retry_after(
    client: aiohttp.ClientSession,
) -> None:
    engine = EngineSettings(max_num_seqs=1, max_num_queued_reqs=2, max_model_len=16_000)
    async with SimulatedPool(engine=engine) as pool:
        calls = [
            asyncio.create_task(complete(client, pool.url, max_tokens=15_000)) for _ in range(2)
        ]
        await eventually(lambda: _true(pool.pods[0].load.waiting == 1))
        body = {"prompt": "hi"}
        async with client.post(f"{pool.url}/v1/completions", json=body) as response:
            assert response.status == 503
            assert "Retry-After" not in response.headers
        rejected = "vllm:admission_rejections_total"
        assert await gauge(client, pool.pod_metrics_urls[0], rejected) == 1
        await _cancel(calls)


async def test_a_shedding_router_answers_429_with_its_reason(
    client: aiohttp.ClientSession,
) -> None:
    async with SimulatedPool(engine=ONE_SLOT, flow_control=Mode.SHED, retry_after=3) as pool:
        calls = [
            asyncio.create_task(complete(client, pool.pod_urls[0], max_tokens=15_000))
            for _ in range(6)
        ]
        await eventually(lambda: _true(pool.saturation() >= 1))
        async with client.post(f"{pool.url}/v1/completions", json={"prompt": "hi"}) as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "3"
            assert response.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
        await _cancel(calls)


async def test_a_holding_router_shows_its_queue_and_sends_on_when_there_is_room(
    client: aiohttp.ClientSession,
) -> None:
    async with SimulatedPool(engine=ONE_SLOT, flow_control=Mode.HOLD) as pool:
        busy = [
            asyncio.create_task(complete(client, pool.pod_urls[0], max_tokens=15_000))
            for _ in range(6)
        ]
        await eventually(lambda: _true(pool.saturation() >= 1))
        held = asyncio.create_task(complete(client, pool.url, max_tokens=1))
        queue_size = "llm_d_epp_flow_control_queue_size"

        async def is_held() -> bool:
            return await gauge(client, pool.metrics_url, queue_size) == 1

        await eventually(is_held)
        await _cancel(busy)
        assert (await held)[0] == 200


async def test_two_thousand_calls_at_once_are_all_answered(client: aiohttp.ClientSession) -> None:
    async with SimulatedPool(pods=2, latency=0.2) as pool:
        calls = (complete(client, pool.url, user=f"r-{number}") for number in range(2000))
        answers = await asyncio.gather(*calls)
        assert {status for status, _ in answers} == {200}
        assert len(pool.ledger.answers) == 2000
        assert not pool.ledger.repeated()


# Faults


async def test_a_hanging_call_is_not_answered(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    instant.faults.set(hang=1)
    call = asyncio.create_task(complete(client, instant.url, user="r"))
    await eventually(lambda: _true(instant.ledger.calls == {"r": 1}))
    done, _ = await asyncio.wait([call], timeout=0.3)
    assert not done
    assert not instant.ledger.answers
    await _cancel([call])


async def test_a_reset_connection(client: aiohttp.ClientSession, instant: SimulatedPool) -> None:
    instant.faults.set(reset=1)
    with pytest.raises((aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
        await complete(client, instant.url)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_reset_in_the_middle_of_the_answer(
    client: aiohttp.ClientSession, instant: SimulatedPool, stream: bool
) -> None:
    instant.faults.set(reset_mid_answer=1, answer_bytes=100_000)
    body = {"prompt": "hi", "stream": stream}
    with pytest.raises((aiohttp.ClientOSError, aiohttp.ClientPayloadError)):
        async with client.post(f"{instant.url}/v1/completions", json=body) as response:
            await response.read()


async def test_a_share_of_calls_fails_with_the_status_given(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    instant.faults.set(error=0.5, error_status=502)
    statuses = [(await complete(client, instant.url))[0] for _ in range(60)]
    assert set(statuses) == {200, 502}


@pytest.mark.parametrize(("seconds", "header"), [(2.5, "2.5"), (None, None)])
async def test_429_with_and_without_retry_after(
    client: aiohttp.ClientSession,
    instant: SimulatedPool,
    seconds: float | None,
    header: str | None,
) -> None:
    instant.faults.set(throttle=1, retry_after=seconds)
    async with client.post(f"{instant.url}/v1/completions", json={"prompt": "hi"}) as response:
        assert response.status == 429
        assert response.headers.get("Retry-After") == header


async def test_added_latency(client: aiohttp.ClientSession, instant: SimulatedPool) -> None:
    instant.faults.set(added_latency=0.2)
    began = time.monotonic()
    await complete(client, instant.url)
    assert time.monotonic() - began >= 0.19


async def test_an_answer_that_trickles(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    instant.faults.set(trickle=1, trickle_seconds=0.001)
    status, answer = await complete(client, instant.url, max_tokens=1)
    assert status == 200
    assert answer["usage"]["completion_tokens"] == 1
    instant.faults.set(trickle_seconds=60)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await complete(client, instant.url)


async def test_a_big_answer(client: aiohttp.ClientSession, instant: SimulatedPool) -> None:
    instant.faults.set(answer_bytes=3_000_000)
    body = {"prompt": "hi"}
    async with client.post(f"{instant.url}/v1/completions", json=body) as response:
        answer = await response.read()
    assert len(answer) == 3_000_000
    assert json.loads(answer)["object"] == "text_completion"


async def test_a_content_length_that_promises_too_much(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    instant.faults.set(wrong_length=1)
    with pytest.raises(aiohttp.ClientPayloadError):
        await complete(client, instant.url)


async def test_an_answer_that_is_not_json(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    instant.faults.set(not_json=1)
    async with client.post(f"{instant.url}/v1/completions", json={"prompt": "hi"}) as response:
        assert response.status == 200
        assert (await response.text()).startswith("<html>")


async def test_a_compressed_bomb(client: aiohttp.ClientSession, instant: SimulatedPool) -> None:
    instant.faults.set(bomb=1)
    async with client.post(f"{instant.url}/v1/completions", json={"prompt": "hi"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.content_length
        assert response.content_length < 2**20


async def test_a_pod_that_is_not_ready_gets_no_calls(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    instant.pods[0].faults.set(not_ready=True)
    assert await gauge(client, instant.metrics_url, "llm_d_epp_ready_endpoints") == 1
    instant.pods[0].faults.set(error=1)
    assert {(await complete(client, instant.url))[0] for _ in range(6)} == {200}
    instant.faults.set(not_ready=True)
    assert (await complete(client, instant.url))[0] == 503


async def test_faults_are_switched_over_http(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    async with client.post(f"{instant.pod_urls[0]}/faults", json={"error": 1}) as response:
        assert response.status == 200
    assert [pod.faults.now.error for pod in instant.pods] == [1, 0]
    async with client.post(f"{instant.url}/faults", json={"error": 1}) as response:
        assert [pod["error"] for pod in (await response.json())["pods"]] == [1, 1]
    assert (await complete(client, instant.url))[0] == 500
    async with client.post(f"{instant.url}/faults", json={"explode": 1}) as response:
        assert response.status == 400
        assert "explode" in (await response.json())["error"]
    async with client.delete(f"{instant.url}/faults") as response:
        assert response.status == 200
    assert (await complete(client, instant.url))[0] == 200


# The ledger, the traffic, the end


async def test_the_ledger_counts_executions_over_http(
    client: aiohttp.ClientSession, instant: SimulatedPool
) -> None:
    for user in ("a", "a", "b"):
        await complete(client, instant.url, user=user)
    async with client.get(f"{instant.url}/ledger") as response:
        ledger = await response.json()
    assert ledger == {"total": 3, "calls": {"a": 2, "b": 1}, "answers": {"a": 2, "b": 1}}
    assert instant.ledger.repeated() == {"a": 2}
    async with client.delete(f"{instant.url}/ledger") as response:
        assert (await response.json())["total"] == 0


async def test_interactive_traffic_measures_first_token_and_latency() -> None:
    rhythm = Rhythm(burst_seconds=5, pause_seconds=0.1, burst_rate=100)
    chat = ChatSettings(output_tokens=4)
    async with (
        SimulatedPool(engine=FAST) as pool,
        InteractiveTraffic(pool.url, rhythm=rhythm, chat=chat, seed=1) as traffic,
    ):
        await eventually(lambda: _true(traffic.report().requests >= 20))
        report = traffic.report()
        assert report.failures == 0
        assert report.first_token_p50 is not None
        assert report.latency_p99 is not None
        assert 0 < report.first_token_p50 < report.latency_p99
        pool.faults.set(error=1)
        await eventually(lambda: _true(traffic.report().failures > 0))


async def test_it_stops_at_once_although_calls_are_open(client: aiohttp.ClientSession) -> None:
    pool = SimulatedPool(pods=2, engine=ONE_SLOT)
    await pool.start()
    pool.pods[0].faults.set(hang=1)
    calls = [
        asyncio.create_task(complete(client, pool.url, max_tokens=15_000, stream=bool(number % 2)))
        for number in range(20)
    ]
    await eventually(lambda: _true(pool.ledger.total == 20))
    async with asyncio.timeout(20):  # their answers take 30 s each
        await pool.stop()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, aiohttp.ClientError) for end in ends)
    await pool.stop()


async def test_a_taken_port_is_an_error_and_leaves_nothing_open(instant: SimulatedPool) -> None:
    taken = int(instant.url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="address already in use"):
        await SimulatedPool(pod_port_base=taken).start()


async def _true(value: bool) -> bool:
    return value


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
