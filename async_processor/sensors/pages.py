"""Fetches what a source reads over HTTP; every foreign error ends here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx

from async_processor.sensors.base import BadAnswer, NoAnswer

PAGE_LIMIT: Final = 32 * 2**20
"""Bytes; whatever is longer is no metrics page."""


async def fetch(
    client: httpx.AsyncClient,
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    accept: str,
    timeout: float,
    moves: bool = False,
) -> httpx.Response:
    """GET a page, whatever its status but 3xx and 5xx, in at most `timeout` seconds.

    A redirect is followed only for a page that `moves`.

    Raises:
        NoAnswer: no answer, a broken or a late one, or a 5xx without a body in JSON.
        BadAnswer: the URL cannot be asked, the page is elsewhere, or too long.
    """
    try:
        async with (
            asyncio.timeout(timeout),
            client.stream(
                "GET", url, params=params, headers={"accept": accept}, follow_redirects=moves
            ) as answer,
        ):
            return await _read(answer, shown(url))
    except TimeoutError as error:
        raise NoAnswer(f"{shown(url)}: no answer within {timeout:g} s") from error
    except httpx.HTTPError as error:
        cause = str(error) or type(error).__name__
        raise NoAnswer(f"{shown(url)}: {cause}") from error
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadAnswer(f"{shown(url)}: {error}") from error


async def _read(answer: httpx.Response, name: str) -> httpx.Response:
    if 300 <= answer.status_code < 400:
        raise BadAnswer(f"{name} answered {answer.status_code}, a redirect that is not followed")
    body = bytearray()
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > PAGE_LIMIT:
            raise BadAnswer(f"{name}: the answer is longer than {PAGE_LIMIT} bytes")
    # The body is decoded by now: its coding must not be undone a second time.
    headers = [(k, v) for k, v in answer.headers.multi_items() if k != "content-encoding"]
    whole = httpx.Response(answer.status_code, headers=headers, content=bytes(body))
    if whole.is_server_error and not is_json(whole):
        raise NoAnswer(f"{name} answered {whole.status_code}")
    return whole


def is_json(answer: httpx.Response) -> bool:
    """Whether an answer says that it is JSON."""
    kind: str = answer.headers.get("content-type", "")
    return kind.startswith("application/json")


def shown(url: str) -> str:
    """A URL as people may see it: no user, no password, no query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
