"""HTTP headers: which names and values an operator may have sent."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

OF_THE_CONNECTION: Final = frozenset(
    {
        "connection", "content-length", "expect", "http2-settings", "keep-alive",
        "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "trailers", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Names, in small letters, of what frames a body or holds for one hop only."""
_OF_THE_CALL: Final = OF_THE_CONNECTION | {"accept-encoding", "content-type", "host"}
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*")


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError("must be a header name (letters, digits and - _ .)")
    return name


def _operators_header(name: str) -> str:
    if _header_name(name).lower() in OF_THE_CONNECTION:
        raise ValueError("belongs to the connection and cannot be configured")
    if name.lower() == "accept-encoding":
        raise ValueError("cannot be configured: answers are taken as they are, uncompressed")
    return name


def _marking_header(name: str) -> str:
    if name and _header_name(name).lower() in _OF_THE_CALL:
        raise ValueError("must be another header: this one has a meaning of its own in every call")
    return name


def _header_value(value: str) -> str:
    if not _VALUE.fullmatch(value) or value != value.strip():
        raise ValueError("must be a header value, without control characters and outer spaces")
    return value


HeaderPattern = Annotated[str, AfterValidator(_header_name)]
"""The name of an HTTP header; `*` stands for any characters."""
OperatorsHeader = Annotated[str, AfterValidator(_operators_header)]
"""The name of a header that every call carries."""
MarkingHeader = Annotated[str, AfterValidator(_marking_header)]
"""The name of a header that tells whose a request is, or how urgent; empty turns it off."""
HeaderValue = Annotated[str, AfterValidator(_header_value)]
"""The value of an HTTP header."""
