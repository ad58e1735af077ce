"""The value of a PromQL expression, by an instant query to Prometheus' HTTP API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx
import msgspec

from async_processor.sensors.base import BadAnswer, Measurement, NoAnswer
from async_processor.sensors.figures import finite
from async_processor.sensors.pages import fetch, is_json

NO_SAMPLE: Final = "the query gives no sample"

_REASON_LIMIT: Final = 200

Point = tuple[float, str]
"""Unix seconds of the evaluation, and the value as text."""


class Series(msgspec.Struct):
    """One of an answer's series: its labels and its value."""

    value: Point
    metric: Mapping[str, str] = {}

    def number(self) -> float:
        """The value; raises BadAnswer when it is not finite."""
        text = self.value[1]
        value = finite(text)
        if value is None:
            raise BadAnswer(f"the value is {text[:_REASON_LIMIT]}, and no finite number")
        return value


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


_answer = msgspec.json.Decoder(_Answer)
_point = msgspec.json.Decoder(Point)
_vector = msgspec.json.Decoder(list[Series])


@dataclass(frozen=True)
class PromqlSource:
    """One expression at one server; `url` is the server's base URL."""

    url: str
    query: str
    client: httpx.AsyncClient = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The expression."""
        return self.query

    async def read(self, timeout: float) -> Measurement:
        """Evaluate now; raises as every `Source` does."""
        series = _only(await evaluated(self.client, self.url, self.query, timeout))
        return Measurement(value=series.number(), moment=series.value[0])


async def evaluated(
    client: httpx.AsyncClient, url: str, query: str, timeout: float
) -> Sequence[Series]:
    """What an expression is now; a scalar is a series without labels.

    Raises:
        NoAnswer: nobody answered, or not in time.
        BadAnswer: the answer is of another kind.
    """
    answer = await fetch(
        client,
        f"{url.rstrip('/')}/api/v1/query",
        params={"query": query},
        accept="application/json",
        timeout=timeout,
    )
    return _series_of(_data_of(answer))


def _data_of(answer: httpx.Response) -> _Data:
    if not is_json(answer):
        kind = answer.headers.get("content-type", "no content type").partition(";")[0]
        raise BadAnswer(f"Prometheus answered {answer.status_code} with {kind}, not with JSON")
    try:
        said = _answer.decode(answer.content)
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"Prometheus' answer cannot be read: {error}") from error
    if said.status == "success" and said.data is not None:
        return said.data
    reason = f"Prometheus answered {said.error_type or said.status}: {said.error[:_REASON_LIMIT]}"
    raise NoAnswer(reason) if answer.is_server_error else BadAnswer(reason)


def _series_of(data: _Data) -> Sequence[Series]:
    try:
        match data.result_type:
            case "scalar":
                return [Series(value=_point.decode(data.result))]
            case "vector":
                return _vector.decode(data.result)
            case other:
                raise BadAnswer(f"the query gives a {other}; one sample is needed")
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"Prometheus' answer cannot be read: {error}") from error


def _only(series: Sequence[Series]) -> Series:
    if not series:
        raise BadAnswer(NO_SAMPLE)
    if len(series) > 1:
        raise BadAnswer(f"the query gives {len(series)} series; one is needed")
    return series[0]
