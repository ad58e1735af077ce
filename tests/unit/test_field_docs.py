"""What stands below fields, read from the source of their class."""

from __future__ import annotations

import re

from async_processor.config.settings import Settings
from async_processor.fields.docs import field_docs
from async_processor.fields.section import Section


class Base(Section):
    kept: int = 1
    """Said once,
    over two lines."""
    changed: int = 1
    """What it was."""


class Derived(Base):
    changed: int = 2
    """What it is."""
    silent: int = 3
    loud: int = 4

    """Apart, and still below."""


def test_docs_are_those_below_the_fields_and_a_class_has_its_bases() -> None:
    assert field_docs(Derived, Section) == {
        "kept": "Said once,\nover two lines.",
        "changed": "What it is.",
        "loud": "Apart, and still below.",
    }


def test_a_schema_describes_its_keys_and_no_reader_of_settings_parses_their_source() -> None:
    assert Derived.model_json_schema()["properties"]["changed"]["description"] == "What it is."
    assert Derived.model_fields["changed"].description is None


def test_every_key_at_the_top_is_described() -> None:
    properties = Settings.model_json_schema()["properties"]
    assert all(re.search(r"\w\.$", one["description"]) for one in properties.values())
