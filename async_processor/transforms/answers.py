"""Transforms that leave only what a reader wants of an answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from async_processor.transforms import paths
from async_processor.transforms.base import ResponseTransform
from async_processor.transforms.gcs_uri_multipart import PROVIDER
from async_processor.transforms.paths import Step
from async_processor.wire.request import Request


def select(path: Sequence[Step]) -> ResponseTransform:
    """Leaves what stands at a path: a text bare, anything else as JSON."""
    return lambda _request, answer: paths.select(answer, path)


def drop(fields: Collection[Sequence[Step]]) -> ResponseTransform:
    """Leaves all but what stands at some paths."""

    def transform(_request: Request, answer: bytes, /) -> bytes:
        for path in fields:
            answer = paths.without(answer, path)
        return answer

    return transform


def only_of(providers: Collection[str], transform: ResponseTransform) -> ResponseTransform:
    """Leaves answers alone that are for none of the providers; without any it takes all."""
    if not providers:
        return transform
    return lambda request, answer: (
        transform(request, answer) if request.metadata.get(PROVIDER) in providers else answer
    )
