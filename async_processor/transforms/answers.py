"""Transforms that leave only what a reader wants of an answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from async_processor.transforms import paths
from async_processor.transforms.base import Inapplicable, ResponseTransform
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


def foreign(plugin: ResponseTransform) -> ResponseTransform:
    """A plugin's, whose mistakes must not cost a good answer: they make it inapplicable.

    They are told by their kind alone, for their words may hold a part of the answer.
    """

    def transform(request: Request, answer: bytes, /) -> bytes:
        try:
            changed: object = plugin(request, answer)
        except Inapplicable:
            raise
        except Exception as error:
            raise Inapplicable(f"the plugin failed: {type(error).__name__}") from error
        if not isinstance(changed, bytes):
            raise Inapplicable(f"the plugin gave a {type(changed).__name__}, must give bytes")
        return changed

    return transform


def only_of(providers: Collection[str], transform: ResponseTransform) -> ResponseTransform:
    """Leaves answers alone that are for none of the providers; without any it takes all."""
    if not providers:
        return transform
    return lambda request, answer: (
        transform(request, answer) if request.metadata.get(PROVIDER) in providers else answer
    )
