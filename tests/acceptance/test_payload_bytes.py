"""What the inference server is sent are the bytes of the payload as the producer wrote them: by the
installed command, through a real Redis, at the first call and after a retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from async_processor.producer import Producer
from async_processor.redis_io.connect import open_client
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import until
from async_processor.testing.gateway import Gateway
from async_processor.testing.messages import DEADLINE
from async_processor.testing.result_reading import reading
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]

PAYLOADS: Final = [
    b"{}",
    b'{ "b" : 1,\t"a" : 2 , "b":3 }',
    b'{"n": 123456789012345678901234567890, "f": 1e400, "g": -0.0, "h": 1.10}',
    rb'{"u": "\u00e9\ud83d\ude00\/\u0000", "half": "\ud800"}',
    '{"é": "☃ \U0001f600"}'.encode(),
    b'{\n"a"\n:\r\n[1 ,2]}',
    b'{"deep": ' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"large": "' + b"x" * 600_000 + b'"}',
]


def written(number: int, payload: bytes) -> bytes:
    """A message, every other one bare, with white space around its payload."""
    data = b'{"id": "r-%d", "deadline": %d, "payload":  %b }' % (number, DEADLINE, payload)
    return data if number % 2 else b'{"internal": {}, "data": %b}' % data


async def test_payloads_keep_their_bytes_also_when_they_are_sent_again(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    client = open_client(redis_server.url)
    for number, payload in enumerate(PAYLOADS):
        await client.execute("ZADD", "request-sortedset", DEADLINE, written(number, payload))
    await client.close()
    async with (
        Gateway(failures=len(PAYLOADS)) as gateway,
        reading(producer) as seen,
        fleet(gateway.url, workers=len(PAYLOADS)) as daemon,
    ):
        await until(lambda: len(seen) == len(PAYLOADS))
        bodies = [arrival.body for arrival in gateway.arrivals]
        assert set(bodies) == set(PAYLOADS)
        assert len(bodies) == 2 * len(PAYLOADS)
        assert await daemon.terminate() == 0
