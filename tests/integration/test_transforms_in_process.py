"""A daemon that rewrites bodies: what the gateway gets and what the results hold."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from async_processor.config.load import validated
from async_processor.daemon.build import build
from async_processor.daemon.daemon import Daemon
from async_processor.testing.eventually import eventually
from async_processor.testing.gateway import Gateway
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.messages import message
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire import result as results
from async_processor.wire.envelope import score
from async_processor.wire.result import ErrorCode, Result

QUEUE = "request-sortedset"
SIGNED = "https://storage.googleapis.com/b/o.wav"
TRANSFORMS = {
    "request": [{"type": "gcs_uri_multipart", "providers": ["whisper"]}],
    "response": [{"type": "select", "path": "choices[0].text"}],
}


@asynccontextmanager
async def daemon(gateway: Gateway, **queue: Any) -> AsyncIterator[MemoryProbe]:
    async with memory_probe() as probe:
        settings = validated(
            {
                "transport": {
                    "type": "memory",
                    "queues": [{"igw_base_url": gateway.url, **queue}],
                },
                "transforms": TRANSFORMS,
                "retry": {"base_delay": 0.05, "max_delay": 0.1},
                "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
                "drain_timeout": 0,
            },
            {},
        )
        transport = MemoryTransport(MemorySettings(), probe.broker)
        running = asyncio.create_task(Daemon(build(settings, transport=transport)).run())
        try:
            yield probe
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def submit(probe: MemoryProbe, request_id: str, **fields: Any) -> None:
    deadline = time.time() + 600
    await probe.submit(QUEUE, message(request_id, deadline=deadline, **fields), score(deadline, 0))


async def all_results(probe: MemoryProbe, count: int) -> Mapping[str, Result]:
    async def all_there() -> Sequence[bytes] | None:
        found = await probe.results("result-list")
        return found if len(found) >= count else None

    found = [results.decode(body) for body in await eventually(all_there) or ()]
    assert len(found) == count
    return {each.id: each for each in found}


async def test_a_form_a_payload_and_a_refusal() -> None:
    async with Gateway(failures=1) as gateway, daemon(gateway, model={"old": "new"}) as probe:
        metadata = {"provider": "whisper"}
        form = {"gcs_uri": SIGNED, "model": "old"}
        await submit(
            probe, "form", payload=form, metadata=metadata, headers={"CONTENT-TYPE": "a/b"}
        )
        await submit(probe, "inline", payload={**form, "file_base64": "AA"}, metadata=metadata)
        await submit(probe, "json", payload={"model": "old", "n": 1.50})
        found = await all_results(probe, 3)

    assert found["form"].payload == found["json"].payload == "hello"
    assert found["form"].status_code == found["json"].status_code == 200
    assert found["inline"].error_code is ErrorCode.INVALID_REQUEST
    assert found["inline"].error_message == (
        "payload.file_base64: cannot be sent beside gcs_uri: leave one of them out"
    )
    sent = {arrival.body: arrival for arrival in gateway.arrivals}
    assert json.dumps({"model": "new", "n": 1.50}).encode() in sent
    as_form = next(body for body in sent if b"form-data" in body)
    content_types = [v for k, v in sent[as_form].headers.items() if k.lower() == "content-type"]
    assert len(content_types) == 1
    assert content_types[0].startswith("multipart/form-data; boundary=")
    assert SIGNED.encode() in as_form
    assert b"\r\n\r\nnew\r\n" in as_form
