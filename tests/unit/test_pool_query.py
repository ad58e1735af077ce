"""One query for the room of a pool, its places, and as of when: what is made of the answer."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from async_processor.sensors.base import BadAnswer, Measurement
from async_processor.sensors.pool_query import PoolQuerySource

NOW = 1764044000.0


async def read(figures: Mapping[str, str], *, places: bool = True) -> Measurement:
    """What is read when Prometheus says these figures at NOW."""
    series = [{"metric": {"figure": k}, "value": [NOW, text]} for k, text in figures.items()]
    answer = {"status": "success", "data": {"resultType": "vector", "result": series}}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    async with httpx.AsyncClient(transport=transport) as client:
        source = PoolQuerySource(
            name="pods", url="http://p", query="q", lag=0.5 if places else None, client=client
        )
        return await source.read(1)


async def test_a_value_comes_with_its_places_and_is_as_old_as_its_oldest_sample() -> None:
    found = await read({"room": "0.5", "capacity": "6", "sampled_at": f"{NOW - 14}"})
    assert found == Measurement(value=0.5, capacity=6, moment=NOW, lag=14.5)


async def test_a_sample_is_never_from_the_future() -> None:
    found = await read({"room": "1", "capacity": "6", "sampled_at": f"{NOW + 3}"})
    assert found == Measurement(value=1, capacity=6, moment=NOW, lag=0.5)


async def test_without_places_only_the_room_is_needed() -> None:
    found = await read({"room": "0.25"}, places=False)
    assert found == Measurement(value=0.25, moment=NOW)


async def test_a_full_pool_says_what_fills_it() -> None:
    load = {"kv_cache": "0.91", "waiting": "3", "running": "7"}
    full = await read({"room": "0", **load}, places=False)
    assert full.note == "in a pod at most: KV cache 91%, 3 waiting, 7 running"
    assert not (await read({"room": "0.1", **load}, places=False)).note, (
        "there is nothing to explain"
    )
    for missing in load:
        assert not (await read({"room": "0", **load, missing: "NaN"}, places=False)).note


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ({}, "no sample"),
        ({"capacity": "6", "sampled_at": "1"}, "no sample"),
        ({"room": "0.5", "capacity": "6"}, "no sample"),
        ({"room": "0.5", "sampled_at": "1"}, "no sample"),
        ({"room": "NaN", "sampled_at": "1", "capacity": "6"}, "NaN"),
        ({"room": "1", "sampled_at": "1", "capacity": "+Inf"}, "Inf"),
        ({"room": "1", "sampled_at": "NaN", "capacity": "6"}, "NaN"),
    ],
)
async def test_an_answer_without_a_usable_figure_cannot_be_read(
    figures: dict[str, str], why: str
) -> None:
    with pytest.raises(BadAnswer, match=why):
        await read(figures)
