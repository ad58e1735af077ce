"""What the settings of all gates have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import ConfigDict

from async_processor.fields import Section


class GatingMode(StrEnum):
    """What a gate does with a request over its limit."""

    BLOCKING = "blocking"
    CLASSIFYING = "classifying"


class GateSection(Section):
    """What all gates have in common: a parameter may be a number where a text is meant."""

    model_config: ClassVar[ConfigDict] = ConfigDict(coerce_numbers_to_str=True)

    shared: bool = False
    """The replicas that live divide the budget, limit or rate among them."""
