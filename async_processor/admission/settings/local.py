"""Gates that need nobody but this process."""

from __future__ import annotations

from typing import Literal

from async_processor.admission.settings.section import GateSection, GatingMode
from async_processor.fields import Count


class ConstantGate(GateSection):
    """Always open."""

    type: Literal["constant"] = "constant"
    """Always open."""


class LocalMaxConcurrencyGate(GateSection):
    """At most `limit` requests at once in this process."""

    type: Literal["local-max-concurrency"] = "local-max-concurrency"
    """At most `limit` requests at once in this process."""
    limit: Count
    """Requests in flight."""
    gating_mode: GatingMode = GatingMode.CLASSIFYING
    """classifying refuses over the limit, blocking waits."""
