"""Makes a queue's rewrites from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from async_processor.transforms import answers
from async_processor.transforms.base import RequestTransform, ResponseTransform
from async_processor.transforms.bodies import Bodies
from async_processor.transforms.gcs_uri_multipart import GcsUriMultipart
from async_processor.transforms.models import Models
from async_processor.transforms.paths import read_path
from async_processor.transforms.settings import (
    DropTransform,
    GcsUriMultipartTransform,
    RequestPluginTransform,
    RequestTransforms,
    ResponsePluginTransform,
    ResponseTransforms,
    SelectTransform,
    TransformSettings,
)


def build_bodies(settings: TransformSettings, model: Mapping[str, str]) -> Bodies:
    """What the bodies of a queue with these models go through."""
    return Bodies(
        models=Models(model) if model else None,
        requests=[_request_transform(each) for each in settings.request],
        responses=[
            (each.name or each.type, _response_transform(each)) for each in settings.response
        ],
    )


def _request_transform(settings: RequestTransforms) -> RequestTransform:
    match settings:
        case GcsUriMultipartTransform():
            return GcsUriMultipart(settings.providers)
        case RequestPluginTransform():
            return cast("RequestTransform", settings.made())


def _response_transform(settings: ResponseTransforms) -> ResponseTransform:
    match settings:
        case SelectTransform():
            transform = answers.select(read_path(settings.path))
            return answers.only_of(settings.providers, transform)
        case DropTransform():
            transform = answers.drop([read_path(field) for field in settings.fields])
            return answers.only_of(settings.providers, transform)
        case ResponsePluginTransform():
            return answers.foreign(settings.made())
