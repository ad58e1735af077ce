"""Writes the chart's values.schema.json: values.schema.yaml, the names of the alerts, and, as the
schema of `config`, the daemon's own.

    .venv/bin/python charts/values_schema.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from async_processor.config.schema import schema

FOLDER: Final = Path(__file__).parent
CHART: Final = FOLDER / "async-processor"
TARGET: Final = CHART / "values.schema.json"
_NOT_A_DEFINITION: Final = ("$schema", "$defs")


def text() -> str:
    """The file's contents as they are to be."""
    whole: dict[str, Any] = yaml.safe_load((FOLDER / "values.schema.yaml").read_text())
    daemon = schema()
    for queue in ("QueueSettings", "TopicSettings"):
        # The chart has a sentence of its own where it is missing.
        daemon["$defs"][queue]["required"].remove("igw_base_url")
    settings = {key: value for key, value in daemon.items() if key not in _NOT_A_DEFINITION}
    whole["$defs"] |= daemon["$defs"] | {"Settings": settings, "values.alert": {"enum": _alerts()}}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _alerts() -> list[str]:
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"]]


if __name__ == "__main__":
    TARGET.write_text(text())
