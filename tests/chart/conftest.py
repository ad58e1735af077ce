"""The chart's ring: a real helm, Kubernetes' own schemas, promtool."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from async_processor.testing.kubernetes import Helm, KubernetesSchemas, kubernetes_tool
from async_processor.testing.requirements import unavailable

ROOT = Path(__file__).parents[2]
VERSIONS = ("1.29.0", "1.33.0", "1.37.0")


@pytest.fixture(scope="session")
def tools(pytestconfig: pytest.Config) -> Path:
    """Where packaged programs lie between runs."""
    cache = pytestconfig.cache
    assert cache is not None
    return cache.mkdir("kubernetes-tools")


@pytest.fixture
def helm(tools: Path, tmp_path: Path) -> Helm:
    return Helm(kubernetes_tool("helm", tools), ROOT / "charts" / "async-processor", tmp_path)


@pytest.fixture
def kubectl(tools: Path) -> Path:
    return kubernetes_tool("kubectl", tools)


@pytest.fixture(scope="session")
def schemas() -> KubernetesSchemas:
    operators = yaml.safe_load((Path(__file__).parent / "operators.yaml").read_text())
    return KubernetesSchemas(VERSIONS, operators)


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        unavailable("promtool is not installed; it comes with prometheus")
    return str(found)
