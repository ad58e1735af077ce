"""Which bodies are rewritten, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic.json_schema import WithJsonSchema

from async_processor.fields import Name, NonEmpty, OptionalName, Section
from async_processor.transforms import plugins
from async_processor.transforms.models import ANY
from async_processor.transforms.paths import EVERY, read_path


def _by_old_name(value: object) -> object:
    if isinstance(value, str):
        return {ANY: value} if value else {}
    if not isinstance(value, Mapping):
        raise ValueError("must be the name of a model, or a mapping of old names to new ones")  # noqa: TRY004
    return value


ModelNames = Annotated[
    dict[Name, Name],
    BeforeValidator(_by_old_name),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]
"""The model to ask for instead of which; a name alone stands for `{"*": name}`."""


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _path(text: str) -> str:
    read_path(text)
    return text


def _single(text: str) -> str:
    if EVERY in read_path(text):
        raise ValueError("must lead to one place: give an index instead of [*]")
    return text


Providers = Annotated[tuple[NonEmpty, ...], BeforeValidator(_one_or_more)]


class TransformSection(Section):
    """What every transform has."""

    name: OptionalName = ""
    """What the log calls it; default: its type."""


class GcsUriMultipartTransform(TransformSection):
    """Makes a form of payloads that name an object by its signed URL, under gcs_uri."""

    type: Literal["gcs_uri_multipart"]
    """Makes a form of payloads that name an object by its signed URL, under gcs_uri."""
    providers: Annotated[Providers, Field(min_length=1)]
    """Requests whose metadata attribute `provider` is one of these."""


class SelectTransform(TransformSection):
    """Leaves one place of each good answer in the result."""

    type: Literal["select"]
    """Leaves one place of each good answer in the result."""
    path: Annotated[str, AfterValidator(_single)]
    """Where it stands, e.g. choices[0].message.content; a text is left bare."""
    providers: Providers = ()
    """Only for requests whose metadata attribute `provider` is one of these; default: for all."""


class DropTransform(TransformSection):
    """Leaves fields of good answers out of the result."""

    type: Literal["drop"]
    """Leaves fields of good answers out of the result."""
    fields: Annotated[
        tuple[Annotated[str, AfterValidator(_path)], ...],
        BeforeValidator(_one_or_more),
        Field(min_length=1),
    ]
    """Where they stand, e.g. usage or choices[*].logprobs."""
    providers: Providers = ()
    """Only for requests whose metadata attribute `provider` is one of these; default: for all."""


class PluginTransform(TransformSection):
    """Rewrites as an installed package says."""

    group: ClassVar[str]

    type: Literal["plugin"]
    """Rewrites as an installed package says."""
    entry_point: NonEmpty
    """Its name."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Handed to the plugin as they are."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        """Raises ValueError when the plugin is not installed, or refuses its parameters."""
        self.made()
        return self

    def made(self) -> Any:
        """The plugin's transform. Raises ValueError."""
        return plugins.make(self.group, self.entry_point, self.parameters)


class RequestPluginTransform(PluginTransform):
    """Makes another body of a payload, as an installed package says."""

    group: ClassVar[str] = plugins.REQUESTS


class ResponsePluginTransform(PluginTransform):
    """Makes another text of a good answer, as an installed package says."""

    group: ClassVar[str] = plugins.RESPONSES


RequestTransforms = Annotated[
    GcsUriMultipartTransform | RequestPluginTransform, Field(discriminator="type")
]
ResponseTransforms = Annotated[
    SelectTransform | DropTransform | ResponsePluginTransform, Field(discriminator="type")
]


class TransformSettings(Section):
    """Rewriting of bodies, on the way out and back."""

    request: tuple[RequestTransforms, ...] = ()
    """Of payloads; the first that takes a request has it."""
    response: tuple[ResponseTransforms, ...] = ()
    """Of good answers, one after the other."""
