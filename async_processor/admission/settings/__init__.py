"""The gates that a configuration can name, one model per type, and the gates made of others.

To add a gate: write its model, add it to `GateSettings`, and say in `build.py` what is made of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.json_schema import WithJsonSchema

from async_processor.admission.settings.local import ConstantGate, LocalMaxConcurrencyGate
from async_processor.admission.settings.pods import (
    EndpointScrapeGate,
    ScrapeAdmission,
    ValueType,
    VllmPoolGate,
)
from async_processor.admission.settings.prometheus import (
    PrometheusBudgetGate,
    PrometheusQueryGate,
    PrometheusSaturationGate,
)
from async_processor.admission.settings.redis import (
    QuotaMode,
    RedisGate,
    RedisGateSection,
    RedisLeasedRateGate,
    RedisQuotaGate,
)
from async_processor.admission.settings.section import GateSection, GatingMode
from async_processor.fields import NonEmpty

__all__ = [
    "CompositeGate",
    "ConstantGate",
    "EndpointScrapeGate",
    "GateSection",
    "GateSettings",
    "GatingMode",
    "LocalMaxConcurrencyGate",
    "PrometheusBudgetGate",
    "PrometheusQueryGate",
    "PrometheusSaturationGate",
    "QuotaMode",
    "RedisGate",
    "RedisGateSection",
    "RedisLeasedRateGate",
    "RedisQuotaGate",
    "ScrapeAdmission",
    "TierPriorityAdmissionGate",
    "ValueType",
    "VllmPoolGate",
    "WaitOnRefuseGate",
]


class CompositeGate(GateSection):
    """Lets through what all of its gates let through."""

    type: Literal["composite"] = "composite"
    """Lets through what all of its gates let through."""
    gates: Annotated[tuple[GateSettings, ...], Field(min_length=1)]
    """The gates, asked in this order; the smallest budget counts."""


class WaitOnRefuseGate(GateSection):
    """Lets requests wait in memory that its gate would refuse."""

    type: Literal["wait-on-refuse"] = "wait-on-refuse"
    """Lets requests wait in memory that its gate would refuse."""
    gate: GateSettings
    """The gate that decides."""


def _of_the_named_type(
    parameters: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo
) -> object:
    """The gate that `saturation_gate` names, with these parameters."""
    name = info.data.get("saturation_gate")
    if name is None:  # that one's own mistake is told already
        return ConstantGate()
    if not isinstance(parameters, dict):
        return validate(parameters)
    if parameters.get("type", name) != name:
        raise ValueError("must not have a type of its own: saturation_gate names it")
    return validate({**parameters, "type": name})


class TierPriorityAdmissionGate(GateSection):
    """At a saturated pool reserved requests wait, interactive overflow ends, the rest goes back."""

    type: Literal["tier-priority-admission"] = "tier-priority-admission"
    """At a saturated pool reserved requests wait, interactive overflow ends, the rest goes back."""
    saturation_gate: NonEmpty
    """The type of the gate that is closed while the pool is saturated."""
    saturation_gate_params: Annotated[
        GateSettings, WrapValidator(_of_the_named_type), WithJsonSchema({"type": "object"})
    ] = Field(default_factory=dict, validate_default=True)
    """The parameters of that gate."""
    tier_label: NonEmpty = "tier"
    """The queue label that names the tier; anything else than a tier's name is batch."""


GateSettings = Annotated[
    ConstantGate
    | LocalMaxConcurrencyGate
    | EndpointScrapeGate
    | VllmPoolGate
    | PrometheusQueryGate
    | PrometheusSaturationGate
    | PrometheusBudgetGate
    | RedisGate
    | RedisLeasedRateGate
    | RedisQuotaGate
    | CompositeGate
    | WaitOnRefuseGate
    | TierPriorityAdmissionGate,
    Field(discriminator="type"),
]

CompositeGate.model_rebuild()
WaitOnRefuseGate.model_rebuild()
TierPriorityAdmissionGate.model_rebuild()
