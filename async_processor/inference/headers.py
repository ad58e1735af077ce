"""Which headers a call carries: the operator's, the message's as far as it may, and derived ones.

Whoever can write to the queue writes the message's headers, so they are treated as hostile: what
would change the connection, speak for the operator, or break out of its line is left out.

From weakest to strongest: the default `Content-Type`; the message's headers; what is derived from
its metadata (trace context, fairness); what the operator set (objective, configured headers). The
content type of a body that was rewritten goes with the body, and beats all others.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import OF_THE_CONNECTION
from async_processor.wire.envelope import InvalidMessage
from async_processor.wire.request import Request

OBJECTIVE: Final = "x-llm-d-inference-objective"
OLDER_OBJECTIVE: Final = "x-gateway-inference-objective"
FAIRNESS: Final = "x-llm-d-inference-fairness-id"

_CONTENT_TYPE: Final = "content-type"
_JSON: Final = "application/json"
_TRACEPARENT: Final = "traceparent"
_TRACESTATE: Final = "tracestate"

_LONGEST_FAIRNESS_ID: Final = 256
_TENANTS: Final = 1024
"""Of so many, of all queues together, it is remembered whether their names can be sent."""
_LONGEST_TRACESTATE: Final = 512
_COLON_SPACE_AND_LINE_END: Final = 4

_NEVER_FROM_A_MESSAGE: Final = OF_THE_CONNECTION | {
    "host",
    "accept-encoding",  # the engine decides what it can decode
    OBJECTIVE,
    OLDER_OBJECTIVE,
    FAIRNESS,
}

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE: Final = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*")
_TRACE: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,100})?"
)

_Sent = dict[str, tuple[str, str]]


class HeaderRules:
    """The rules of one queue, made once.

    `configured` are the operator's headers; empty values count as not set. `allowed` are
    patterns (`x-team-*`) that a message's header must match; None allows all. An empty
    `fairness_header` or `fairness_attribute` turns fairness off, an empty `objective` or
    `objective_header` the objective, an empty `priority` or `priority_header` the priority; a
    message may not set any of them even then. `header_bytes` bounds what a message may add.

    Raises:
        ConfigurationError: a configured name or value cannot be sent.
    """

    def __init__(
        self,
        *,
        configured: Mapping[str, str],
        objective: str = "",
        objective_header: str = OBJECTIVE,
        fairness_header: str = FAIRNESS,
        fairness_attribute: str = "userid",
        priority_header: str = "",
        priority: str = "",
        allowed: Sequence[str] | None = None,
        header_bytes: int = 32 * 1024,
    ) -> None:
        operators = {name: value for name, value in configured.items() if value}
        derived: dict[str, str] = {}
        if objective and objective_header:
            derived |= dict.fromkeys((objective_header, OLDER_OBJECTIVE), objective)
        if priority and priority_header:
            derived[priority_header] = priority
        self._own = _replaced(derived, operators)
        _check(self._own)
        self._taken = frozenset(map(str.lower, self._own))
        self._reserved = (
            _NEVER_FROM_A_MESSAGE
            | self._taken
            | _lower(objective_header, fairness_header, priority_header)
        )
        fair = fairness_attribute and fairness_header.lower() not in self._taken
        self._fairness_header = fairness_header if fair else ""
        self._fairness_attribute = fairness_attribute
        self._allowed = _any_of(allowed)
        self._header_bytes = header_bytes
        self._usual = self._finished({})
        """Those of a request that has nothing else to say."""
        self._usual_of_tenants = self._finished(self._fairness(""))
        """Likewise, for a tenant's name."""

    def for_request(self, request: Request, content_type: str = "") -> dict[str, str]:
        """The headers of a request's call; `content_type` is that of a rewritten body.

        Raises:
            InvalidMessage: the message's headers are larger than the limit.
        """
        metadata = request.metadata
        tenant = self._tenant(metadata)
        if not (request.headers or content_type or _TRACEPARENT in metadata):
            return self._usually(tenant)
        sent = self._from_message(request.headers)
        self._add_trace(sent, metadata)
        if tenant:
            sent |= self._fairness(tenant)
        headers = self._finished(sent)
        return _replaced(headers, {"Content-Type": content_type}) if content_type else headers

    def _from_message(self, headers: Mapping[str, str]) -> _Sent:
        if not headers:
            return {}
        reserved = self._reserved | _named_by_connection(headers)
        sent = {
            name.lower(): (name, value.strip())
            for name, value in headers.items()
            if name.lower() not in reserved and self._passes(name, value)
        }
        self._measure(sent)
        return sent

    def _passes(self, name: str, value: str) -> bool:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return False
        return self._allowed is None or self._allowed.fullmatch(name.lower()) is not None

    def _measure(self, sent: _Sent) -> None:
        size = sum(
            len(name) + len(value.encode()) + _COLON_SPACE_AND_LINE_END
            for name, value in sent.values()
        )
        if size > self._header_bytes:
            raise InvalidMessage(
                "headers", f"take {size} bytes; at most {self._header_bytes} are allowed"
            )

    def _add_trace(self, sent: _Sent, metadata: Mapping[str, str]) -> None:
        """The metadata's trace context replaces the headers' one as a whole."""
        parent = metadata.get(_TRACEPARENT, "")
        if _TRACEPARENT in self._taken or not _TRACE.fullmatch(parent):
            return
        sent[_TRACEPARENT] = (_TRACEPARENT, parent)
        sent.pop(_TRACESTATE, None)
        state = metadata.get(_TRACESTATE, "")
        if state and _TRACESTATE not in self._taken and _sendable(state, _LONGEST_TRACESTATE):
            sent[_TRACESTATE] = (_TRACESTATE, state)

    def _usually(self, tenant: str) -> dict[str, str]:
        if tenant:
            return self._usual_of_tenants | {self._fairness_header: tenant}
        return dict(self._usual)

    def _tenant(self, metadata: Mapping[str, str]) -> str:
        """Whom the call's fairness header names; empty: it has none, for the caller's own never
        gets here."""
        tenant = metadata.get(self._fairness_attribute, "") if self._fairness_header else ""
        return tenant if len(tenant) <= _LONGEST_FAIRNESS_ID and _names_a_tenant(tenant) else ""

    def _fairness(self, tenant: str) -> _Sent:
        return {self._fairness_header.lower(): (self._fairness_header, tenant)}

    def _finished(self, sent: _Sent) -> dict[str, str]:
        headers = dict(sent.values())
        if _CONTENT_TYPE not in sent and _CONTENT_TYPE not in self._taken:
            headers["Content-Type"] = _JSON
        headers.update(self._own)
        return headers


def _sendable(value: str, longest: int) -> bool:
    """Whether a value is legal as it stands (not only once stripped), within so many bytes."""
    if not _VALUE.fullmatch(value) or value != value.strip():
        return False
    return len(value.encode()) <= longest


@lru_cache(_TENANTS)
def _names_a_tenant(value: str) -> bool:
    """Whether it can be sent as a tenant's name."""
    return _sendable(value, _LONGEST_FAIRNESS_ID)


def _replaced(weaker: Mapping[str, str], stronger: Mapping[str, str]) -> dict[str, str]:
    """Both, without those of the weaker that the stronger names in any case of letters."""
    taken = _lower(*stronger)
    return {**{name: v for name, v in weaker.items() if name.lower() not in taken}, **stronger}


def _lower(*names: str) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name)


def _named_by_connection(headers: Mapping[str, str]) -> frozenset[str]:
    """`Connection: x-a, x-b` makes those hop-by-hop as well."""
    values = (value for name, value in headers.items() if name.lower() == "connection")
    return frozenset(name.strip().lower() for value in values for name in value.split(","))


def _any_of(patterns: Iterable[str] | None) -> re.Pattern[str] | None:
    if patterns is None:
        return None
    return re.compile(
        "|".join(fnmatch.translate(pattern.lower()) for pattern in patterns) or r"(?!)"
    )


def _check(headers: Mapping[str, str]) -> None:
    problems = [
        Problem(path=f"inference.headers.{name}", message=fault)
        for name, value in headers.items()
        if (fault := _fault(name, value))
    ]
    if problems:
        raise ConfigurationError(problems)


def _fault(name: str, value: str) -> str:
    """Why the operator's header can't be sent; never shows the value, which may be a secret."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a legal header name"
    if name.lower() in OF_THE_CONNECTION:
        return "belongs to the connection and cannot be configured"
    if not _VALUE.fullmatch(value) or value != value.strip():
        return "the value has control characters, or spaces at its ends"
    return ""
