"""Every fault there is, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from async_processor.testing.chaos import broker_faults, inference_faults, process_faults
from async_processor.testing.chaos.fault import Fault

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault for fault in (*process_faults.ALL, *broker_faults.ALL, *inference_faults.ALL)
}
