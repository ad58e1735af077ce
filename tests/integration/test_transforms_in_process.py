"""A daemon that rewrites bodies: what the gateway gets and what the results hold."""

from __future__ import annotations

import json

from async_processor.daemon.reload import Reloader
from async_processor.testing.gateway import Gateway
from async_processor.testing.in_memory import in_memory
from async_processor.transforms.settings import TransformSettings
from async_processor.wire.result import ErrorCode

SIGNED = "https://storage.googleapis.com/b/o.wav"
TRANSFORMS = {
    "request": [{"type": "gcs_uri_multipart", "providers": ["whisper"]}],
    "response": [{"type": "select", "path": "choices[0].text"}],
}


async def test_a_form_a_payload_and_a_refusal() -> None:
    metadata = {"provider": "whisper"}
    form = {"gcs_uri": SIGNED, "model": "old"}
    async with (
        Gateway(failures=1) as gateway,
        in_memory(gateway.url, queue={"model": {"old": "new"}}, transforms=TRANSFORMS) as daemon,
    ):
        headers = {"CONTENT-TYPE": "a/b"}
        await daemon.submit("form", payload=form, metadata=metadata, headers=headers)
        await daemon.submit("inline", payload={**form, "file_base64": "AA"}, metadata=metadata)
        await daemon.submit("json", payload={"model": "old", "n": 1.50})
        found = await daemon.results(3)

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


async def test_a_reload_changes_what_is_rewritten() -> None:
    async with Gateway() as gateway, in_memory(gateway.url) as daemon:
        await daemon.submit("before")
        before = await daemon.results(1)
        topology = daemon.parts.topology
        transforms = TransformSettings.model_validate(TRANSFORMS)
        settings = topology.settings.model_copy(update={"transforms": transforms})
        await Reloader(lambda: settings, topology, daemon.parts.shared).reload()
        await daemon.submit("after")
        after = await daemon.results(2)

    assert json.loads(before["before"].payload)["choices"][0]["text"] == "hello"
    assert after["after"].payload == "hello"
