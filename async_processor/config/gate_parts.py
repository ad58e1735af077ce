"""The gates that a gate is made of."""

from __future__ import annotations

from collections.abc import Iterator

from async_processor.admission.settings import (
    CompositeGate,
    GateSettings,
    TierPriorityAdmissionGate,
    WaitOnRefuseGate,
)


def with_inner(path: str, gate: GateSettings) -> Iterator[tuple[str, GateSettings]]:
    """A gate and all that is in it, each with its path in the file."""
    yield path, gate
    match gate:
        case CompositeGate(gates=gates):
            for index, inner in enumerate(gates):
                yield from with_inner(f"{path}.gates[{index}]", inner)
        case WaitOnRefuseGate(gate=inner):
            yield from with_inner(f"{path}.gate", inner)
        case TierPriorityAdmissionGate(saturation_gate_params=inner):
            yield from with_inner(f"{path}.saturation_gate_params", inner)
        case _:
            pass
