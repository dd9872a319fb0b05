"""Helm, built by Go, and the schemas of Kubernetes' objects, in the folder of the user's caches.

`python -m tests.testkit.helm` fetches and builds them; that takes minutes, once.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from tests.conformance.provision import Missing, made, program, run
from tests.testkit.docs.chart import CHART

EXAMPLES = CHART.parent / "examples"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.5"
KUBERNETES = (1, 34)  # the version that Helm takes a cluster for
BUILD_TIMEOUT_S = 1800
# The wheel has the schemas of all versions since 1.25.
SCHEMAS = "kubernetes-validate==1.37.0"
SCHEMAS_SHA256 = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"
SCHEMA_VERSIONS = ("1.27.0", "1.37.0")  # the oldest that the chart accepts, and the newest in the wheel
RELEASE, NAMESPACE = "penstock", "records"

Object = dict[str, Any]


def helm_program() -> Path:
    """The path of Helm."""
    chartutil, rules = "helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"
    version = [f"-X {package}.k8sVersion{part}" for package in (chartutil, rules) for part in ("Major", "Minor")]
    flags = " ".join(["-s -w", *(f"{name}={KUBERNETES[number % 2]}" for number, name in enumerate(version))])
    key = f"{HELM} {flags}"

    def make(folder: Path) -> None:
        command = ["env", f"GOBIN={folder}", program("go"), "install", "-ldflags", flags, HELM]
        run(command, folder, timeout_s=BUILD_TIMEOUT_S)

    return made("helm", key, make) / "helm"


def schemas_wheel() -> Path:
    """The path of the wheel with the schemas."""

    def make(folder: Path) -> None:
        pins = folder / "pins"
        pins.write_text(f"{SCHEMAS} --hash=sha256:{SCHEMAS_SHA256}\n")
        fetch = ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        run([sys.executable, *fetch, "-r", str(pins), "-d", str(folder)], folder)

    return next(made("kubernetes-schemas", SCHEMAS + SCHEMAS_SHA256, make).glob("*.whl"))


class Schemas:
    """The strict schemas of one version of Kubernetes: an unknown field is an error."""

    def __init__(self, version: str) -> None:
        self._folder = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
        self._wheel = zipfile.ZipFile(schemas_wheel())
        self._names = set(self._wheel.namelist())
        definitions = Resource.from_contents(self._read("_definitions.json"), default_specification=DRAFT7)
        self._registry: Registry[Any] = Registry().with_resource("_definitions.json", definitions).crawl()
        self._validators: dict[str, Any] = {}

    def errors(self, each: Object) -> list[str] | None:
        """The errors of an object, or None if Kubernetes itself does not know the kind."""
        group, _, version = each["apiVersion"].rpartition("/")
        group = group.removesuffix(".k8s.io").replace(".", "-")
        name = "-".join(filter(None, (each["kind"].lower(), group, version))) + ".json"
        if f"{self._folder}/{name}" not in self._names:
            return None
        validator = self._validators.get(name)
        if validator is None:
            validator = jsonschema.Draft7Validator(self._read(name), registry=self._registry)
            self._validators[name] = validator
        return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(each)]

    def _read(self, name: str) -> Any:
        return json.loads(self._wheel.read(f"{self._folder}/{name}"))


class Chart:
    """A copy of the chart with its dependency, which Helm renders."""

    def __init__(self, folder: Path, nats_chart: Path | None = None) -> None:
        """`nats_chart` is the folder of the official chart of NATS; without it, an empty chart stands in."""
        self.folder = folder / "penstock"
        shutil.copytree(CHART, self.folder)  # follows the links to alerts and dashboards
        dependency = yaml.safe_load((CHART / "Chart.yaml").read_text())["dependencies"][0]
        nats = self.folder / "charts" / "nats"
        if nats_chart is not None:
            shutil.copytree(nats_chart, nats)
        else:
            nats.mkdir(parents=True)
            stand_in = {"apiVersion": "v2", "name": dependency["name"], "version": dependency["version"]}
            (nats / "Chart.yaml").write_text(yaml.safe_dump(stand_in))

    def run(self, *arguments: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
        """The result of `helm`; `{chart}` in an argument is the folder of the chart, `values` come last."""
        command = [str(helm_program()), *(each.replace("{chart}", str(self.folder)) for each in arguments)]
        if values is not None:
            command += ["--values", "-"]
        text = None if values is None else yaml.safe_dump(values)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    def render(self, example: str, values: Object | None = None) -> list[Object]:
        """The objects for an example and more values; `AssertionError` with Helm's words if it fails."""
        done = self.run(*self.template(example), values=values or {})
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]

    def error(self, example: str, values: Object) -> str:
        """The words with which Helm rejects these values."""
        done = self.run(*self.template(example), values=values)
        assert done.returncode != 0, f"accepted: {values}"
        return done.stderr

    @staticmethod
    def template(example: str) -> list[str]:
        """The arguments of `helm template` for an example."""
        return ["template", RELEASE, "{chart}", "-n", NAMESPACE, "-f", str(EXAMPLES / f"{example}.yaml")]


def pod_templates(objects: list[Object]) -> dict[str, Object]:
    """The pods of workloads and Jobs, by the name of their object."""
    kinds = ("Deployment", "StatefulSet", "Job")
    return {each["metadata"]["name"]: each["spec"]["template"] for each in objects if each["kind"] in kinds}


def variables(template: Object) -> dict[str, str]:
    """The variables of a pod's only container, as it sees them in the first pod of its set."""
    found: dict[str, str] = {}
    for each in template["spec"]["containers"][0]["env"]:
        text = each.get("value", "POD-0")
        for name, value in found.items():
            text = text.replace(f"$({name})", value)
        found[each["name"]] = text
    return found


if __name__ == "__main__":
    try:
        print(helm_program(), schemas_wheel())
    except Missing as missing:
        sys.exit(f"helm cannot be had: {missing}")
