"""What lies on the dead-letter queue: a message nobody could process, and why."""

from __future__ import annotations

import base64

import msgspec


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One JSON object on the dead-letter queue.

    `message` is the raw message; one that is not UTF-8 stands in `message_base64` instead.
    `buried_at` is a Unix time in seconds, `deliveries` how often the message was claimed before
    without an outcome. `result` is the request's result where no result queue could take it; it
    belongs on `result_queue_name`, which expires so many milliseconds after the push.
    """

    reason: str
    queue_name: str
    buried_at: float
    deliveries: int = 0
    message: str | None = None
    message_base64: str | None = None
    result: str | None = None
    result_queue_name: str | None = None
    result_expires_ms: int | None = None

    @property
    def body(self) -> bytes:
        """The message byte for byte as it was claimed; raises ValueError when it is no base64."""
        if self.message is not None:
            return self.message.encode()
        return base64.b64decode(self.message_base64 or "")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DeadLetter)


def encode(
    body: bytes,
    *,
    reason: str,
    queue_name: str,
    buried_at: float,
    deliveries: int,
    result: bytes | None = None,
    result_queue_name: str | None = None,
    result_expires_ms: int | None = None,
) -> bytes:
    """The dead letter as it lies on its queue; `buried_at` is a Unix time in seconds.

    `result` is an encoded result that has no other place to go, though it was meant for
    `result_queue_name`.
    """
    try:
        message, in_base64 = body.decode(), None
    except UnicodeDecodeError:
        message, in_base64 = None, base64.b64encode(body).decode()
    return _encoder.encode(
        DeadLetter(
            reason=reason,
            queue_name=queue_name,
            buried_at=buried_at,
            deliveries=deliveries,
            message=message,
            message_base64=in_base64,
            result=None if result is None else result.decode(),
            result_queue_name=result_queue_name,
            result_expires_ms=result_expires_ms,
        )
    )


def decode(letter: bytes) -> DeadLetter:
    """Read a dead letter; raises `msgspec.MsgspecError` (a `ValueError`) when it is none."""
    return _decoder.decode(letter)
