"""A payload that names a stored object becomes a form, for servers that fetch what they work on.

Speech and document models take `multipart/form-data` with the object's `url`. Their media do not
fit into a queue, so the payload carries a signed URL under `gcs_uri` instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from async_processor.transforms import multipart, signed_url
from async_processor.transforms.base import Rewrite
from async_processor.wire import scan
from async_processor.wire.invalid import InvalidMessage
from async_processor.wire.request import Request
from async_processor.wire.shapes import NULL, split

PROVIDER: Final = "provider"
"""The metadata attribute that says for whom a request is."""

_SIGNED_URL: Final = "gcs_uri"
_INLINE: Final = "file_base64"
_URL: Final = "url"


class GcsUriMultipart:
    """Takes requests for one of its providers whose payload has a `gcs_uri`.

    The URL becomes the field `url`, and each other member a field of its own name: a text as it
    is, anything else as JSON.
    """

    def __init__(self, providers: Collection[str]) -> None:
        self._providers = frozenset(providers)

    def __call__(self, request: Request, payload: bytes, /) -> Rewrite | None:
        """Raises InvalidMessage for what cannot be a form, or would outlive its URL."""
        if request.metadata.get(PROVIDER) not in self._providers:
            return None
        members = split(payload)
        url = scan.text_of(bytes(members.pop(_SIGNED_URL, b"")))
        if not url:
            return None
        _check(members)
        _check_end(url, request.deadline)
        members.pop(_INLINE, None)
        return multipart.form([(_URL, url), *_fields(members)])


def _check(members: Mapping[str, msgspec.Raw]) -> None:
    if bytes(members.get(_INLINE, NULL)) not in (NULL, b'""'):
        raise InvalidMessage(
            f"payload.{_INLINE}", f"cannot be sent beside {_SIGNED_URL}: leave one of them out"
        )
    if _URL in members:
        raise InvalidMessage(
            f"payload.{_URL}", f"cannot be sent beside {_SIGNED_URL}, which takes its place"
        )


def _check_end(url: str, deadline: float) -> None:
    """Whoever takes the request up to its deadline must still be able to fetch the object."""
    end = signed_url.ends_at(url)
    if end is not None and end <= deadline:
        raise InvalidMessage(
            f"payload.{_SIGNED_URL}",
            f"the signed URL ends at {end:.0f}, which must be after the deadline {deadline:.15g}",
        )


def _fields(members: Mapping[str, msgspec.Raw]) -> list[tuple[str, str]]:
    return [(name, _text(bytes(value))) for name, value in members.items()]


def _text(value: bytes) -> str:
    if value == NULL:
        return ""
    text = scan.text_of(value)
    return value.decode(errors="replace") if text is None else text
