"""Where a setting stands: its path in the file, its value, and the model that describes it."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from async_processor.config.wording import step
from async_processor.fields import Section


class Place:
    """A spot in a document, reached key by key from the root.

    `section` is the model whose key was followed last, `types` are the legal values of the type
    that is chosen here, and `secret` says that the value must not be shown.
    """

    def __init__(self, root: type[Section], document: Any) -> None:
        self.path = ""
        self.key = ""
        self.value = document
        self.section: type[Section] | None = None
        self.secret = False
        self._annotation: Any = root

    @property
    def types(self) -> tuple[str, ...]:
        """Names of the types that may stand here; empty where there is no choice."""
        members = _members(self._annotation)
        if members:
            return tuple(members)
        if self.key == "type" and self.section is not None:
            return get_args(self.section.model_fields["type"].annotation)
        return ()

    def follow(self, step: str | int) -> None:
        """Go one step of a validation error's location."""
        if isinstance(step, int):
            self._enter_item(step)
        elif step in _members(self._annotation) and not self._has(step):
            self._annotation = _members(self._annotation)[step]
        elif step != "[key]":
            self._enter_key(step)

    def _has(self, key: str) -> bool:
        return isinstance(self.value, Mapping) and key in self.value

    def _enter_item(self, index: int) -> None:
        self.path += f"[{index}]"
        if not isinstance(self.value, str):  # which stands for a list of one
            items = self.value if isinstance(self.value, Sequence) else ()
            self.value = items[index] if index < len(items) else None
        self._annotation = _first(get_args(self._annotation))

    def _enter_key(self, key: str) -> None:
        self.path = step(self.path, key)
        self.key = key
        self.value = self.value.get(key) if isinstance(self.value, Mapping) else None
        self.section = _section(self._annotation)
        self._annotation = self._annotation_of(key)

    def _annotation_of(self, key: str) -> Any:
        if self.section is None:
            return _value_annotation(self._annotation)
        name = self.section.keys().get(key)
        if name is None:
            return None
        self.secret |= self.section.hides(name)
        return _bare(self.section.model_fields[name].annotation)


def find(root: type[Section], document: Any, location: Sequence[str | int]) -> Place:
    """The place that a validation error's location names."""
    place = Place(root, document)
    for each in location:
        place.follow(each)
    return place


def _bare(annotation: Any) -> Any:
    """The annotation without `Annotated` and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return _bare(members[0])
    return annotation


def _value_annotation(annotation: Any) -> Any:
    """What stands behind the keys of a `dict`."""
    arguments = get_args(annotation)
    return _bare(arguments[1]) if len(arguments) == 2 else None


def _first(annotations: Sequence[Any]) -> Any:
    return _bare(annotations[0]) if annotations else None


def _section(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return None


def _members(annotation: Any) -> dict[str, type[Section]]:
    """The models of a union by the type that chooses them."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return {}
    return {
        name: member
        for member in get_args(annotation)
        if _section(member) is not None
        for name in get_args(member.model_fields["type"].annotation)
    }
