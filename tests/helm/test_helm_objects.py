"""The objects of the chart: valid, connected by their names and labels, secure, and without secrets."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli import main
from tests.helm.conftest import EXAMPLE_NAMES, JOBS, NATS_CHART, Render
from tests.testkit.docs.chart import CHART
from tests.testkit.helm import (
    EXAMPLES,
    NAMESPACE,
    RELEASE,
    SCHEMA_VERSIONS,
    Chart,
    Object,
    Schemas,
    pod_templates,
    variables,
)
from tests.testkit.monitoring import ALERTS

pytestmark = pytest.mark.helm

DASHBOARDS = Path(ALERTS).parents[1] / "grafana" / "dashboards"
# The required fields of objects of operators, which the schemas of Kubernetes do not have.
CUSTOM = {
    "ServiceMonitor": {"selector": dict, "endpoints": list},
    "PrometheusRule": {"groups": list},
    "ScaledObject": {"scaleTargetRef": dict, "triggers": list},
}
STOP_MARGIN_S = 10  # for the steps after the drain, as in compose.yaml


def is_job(name: str) -> bool:
    return any(f"-{job}-" in name for job in JOBS)


@pytest.fixture(scope="session", params=SCHEMA_VERSIONS)
def schemas(request: pytest.FixtureRequest, chart: Chart) -> Schemas:
    return Schemas(request.param)


def of_kind(objects: list[Object], *kinds: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] in kinds}


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def own(objects: list[Object]) -> list[Object]:
    """Without the objects of the official chart of NATS, if it is there."""
    return [each for each in objects if each["metadata"]["labels"]["app.kubernetes.io/name"] == "penstock"]


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_helm_finds_nothing_to_complain_of(chart: Chart, example: str) -> None:
    done = chart.run("lint", "--strict", "{chart}", "-f", str(EXAMPLES / f"{example}.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubernetes_accepts_every_object(schemas: Schemas, rendered: Render) -> None:
    unknown = set()
    # Examples have many objects in common, and validation is slow.
    distinct = {json.dumps(each): each for example in EXAMPLE_NAMES for each in rendered(example)}
    for each in distinct.values():
        errors = schemas.errors(each)
        assert not errors, f"{each['kind']} {each['metadata']['name']}: {errors}"
        if errors is None:
            unknown.add(each["kind"])
            wanted = CUSTOM[each["kind"]]
            assert {name: type(each["spec"][name]) for name in wanted} == wanted
    assert unknown == set(CUSTOM)


def test_a_wrong_field_is_found(schemas: Schemas, rendered: Render) -> None:
    """The schemas are strict: the test above would find a misspelled field."""
    found = json.loads(json.dumps(of_kind(rendered("minimal"), "StatefulSet")["penstock-gateway-z1"]))
    found["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
    assert schemas.errors(found)


def test_names_are_unique(objects: list[Object]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    assert {each["metadata"]["namespace"] for each in own(objects)} == {NAMESPACE}


def test_selectors_match_the_pods_that_they_mean(objects: list[Object]) -> None:
    objects = own(objects)
    pods = {name: template["metadata"]["labels"] for name, template in pod_templates(objects).items()}
    for name, each in of_kind(objects, "Deployment", "StatefulSet").items():
        selector = each["spec"]["selector"]["matchLabels"]
        assert [pod for pod, labels in pods.items() if matches(selector, labels)] == [name]
        for spread in each["spec"]["template"]["spec"]["topologySpreadConstraints"]:
            assert spread["labelSelector"]["matchLabels"] == selector
    components = {labels["app.kubernetes.io/component"] for labels in pods.values()} - JOBS
    budgets = of_kind(objects, "PodDisruptionBudget")
    assert set(budgets) == {f"{RELEASE}-{component}" for component in components}
    for name, each in budgets.items():
        selected = {
            labels["app.kubernetes.io/component"]
            for labels in pods.values()
            if matches(each["spec"]["selector"]["matchLabels"], labels)
        }
        assert {f"{RELEASE}-{component}" for component in selected} == {name}


def test_services_lead_to_ports_of_pods(objects: list[Object]) -> None:
    objects = own(objects)
    templates = list(pod_templates(objects).values())
    for name, service in of_kind(objects, "Service").items():
        selected = [each for each in templates if matches(service["spec"]["selector"], each["metadata"]["labels"])]
        assert selected, name
        for port in service["spec"]["ports"]:
            for each in selected:
                if each["metadata"]["labels"]["app.kubernetes.io/component"] in JOBS:
                    continue  # a Job without ports
                ports = {known["name"]: known["containerPort"] for known in each["spec"]["containers"][0]["ports"]}
                assert port["targetPort"] in ports, (name, port)


def test_a_pod_of_a_set_has_the_address_that_it_advertises(objects: list[Object]) -> None:
    services = of_kind(objects, "Service")
    for name, each in of_kind(own(objects), "StatefulSet").items():
        governing = services[each["spec"]["serviceName"]]["spec"]
        assert governing["clusterIP"] == "None" and governing["publishNotReadyAddresses"]
        assert matches(governing["selector"], each["spec"]["template"]["metadata"]["labels"])
        advertised = variables(each["spec"]["template"])["PENSTOCK_ADVERTISED_LISTENERS"].split(",")[0]
        assert advertised == f"INTERNAL://POD-0.{name}.{NAMESPACE}.svc.cluster.local:9092"


def test_a_zone_has_its_nodes_and_its_address(rendered: Render) -> None:
    objects = rendered("three-zones")
    for service in ("gateway", "flusher", "cacher", "sequencer"):
        for zone in "abc":
            template = pod_templates(objects)[f"penstock-{service}-{zone}"]
            assert variables(template)["PENSTOCK_ZONE"] == zone
            affinity = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert affinity["nodeSelectorTerms"][0]["matchExpressions"] == [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"eu-central-1{zone}"]}
            ]
    found = variables(pod_templates(objects)["penstock-gateway-b"])["PENSTOCK_ADVERTISED_LISTENERS"]
    assert found.endswith(",EXTERNAL://kafka-b.example.com:9092")
    external = of_kind(objects, "Service")["penstock-external-b"]["spec"]
    assert external["type"] == "LoadBalancer"
    assert matches(external["selector"], pod_templates(objects)["penstock-gateway-b"]["metadata"]["labels"])
    assert not matches(external["selector"], pod_templates(objects)["penstock-gateway-a"]["metadata"]["labels"])


def test_node_ports_are_advertised(chart: Chart) -> None:
    zones = [{"name": "z1", "externalHost": "node.example.com", "nodePort": 30092}]
    objects = chart.render("minimal", {"zones": zones, "kafka": {"external": {"enabled": True, "type": "NodePort"}}})
    found = variables(pod_templates(objects)["penstock-gateway-z1"])["PENSTOCK_ADVERTISED_LISTENERS"]
    assert found.endswith(",EXTERNAL://node.example.com:30092")
    service = of_kind(objects, "Service")["penstock-external-z1"]["spec"]
    assert service["type"] == "NodePort"
    assert service["ports"] == [{"name": "kafka", "port": 9092, "targetPort": "external", "nodePort": 30092}]


def test_pods_have_no_rights(objects: list[Object]) -> None:
    for name, template in pod_templates(objects).items():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
    for template in pod_templates(own(objects)).values():
        # Else Kubernetes makes variables such as PENSTOCK_NATS_PORT, which are settings' names.
        assert template["spec"]["enableServiceLinks"] is False
        assert template["spec"]["containers"][0]["resources"]["limits"]["memory"]


def test_there_are_no_secrets(objects: list[Object]) -> None:
    """Secrets are references: no object of the kind, and no variable whose name speaks of one but names no file."""
    assert not of_kind(own(objects), "Secret")
    for template in pod_templates(own(objects)).values():
        for name, value in variables(template).items():
            if re.search("PASSWORD|SECRET|TOKEN|_KEY", name):
                assert value.startswith("/run/"), name
    assert not re.search(r"(?i)(password|secret_key|access_key)=", json.dumps(objects))
    assert "BEGIN " not in json.dumps(objects)


def test_a_stop_lasts_as_long_as_a_drain(chart: Chart) -> None:
    objects = chart.render("minimal", {"drainDeadlineMs": 30_500, "preStopSeconds": 7})
    for name, each in pod_templates(own(objects)).items():
        if is_job(name):
            continue
        is_served = "gateway" in name or "console" in name
        assert each["spec"]["terminationGracePeriodSeconds"] == 31 + STOP_MARGIN_S + 7 * is_served
        lifecycle = each["spec"]["containers"][0].get("lifecycle")
        wanted = {"preStop": {"exec": {"command": ["sleep", "7"]}}} if is_served else None
        assert lifecycle == wanted
        assert variables(each)["PENSTOCK_DRAIN_DEADLINE_MS"] == "30500"


def test_probes_ask_the_paths_without_a_token(objects: list[Object]) -> None:
    for name, each in pod_templates(own(objects)).items():
        container = each["spec"]["containers"][0]
        if is_job(name):
            continue
        paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
        assert {port["name"]: port["containerPort"] for port in container["ports"]}["http"] == 8080


def test_autoscaling_replaces_the_number_of_pods(rendered: Render) -> None:
    objects = rendered("external-nats")
    scalers = of_kind(objects, "HorizontalPodAutoscaler")
    assert set(scalers) == {"penstock-gateway-z1", "penstock-flusher-z1", "penstock-cacher-z1"}
    workloads = of_kind(objects, "Deployment", "StatefulSet")
    for name, scaler in scalers.items():
        target = scaler["spec"]["scaleTargetRef"]
        assert target["name"] == name and target["kind"] == workloads[name]["kind"]
        assert "replicas" not in workloads[name]["spec"]
    metrics = [
        each["pods"]["metric"]["name"] for each in scalers["penstock-flusher-z1"]["spec"]["metrics"] if "pods" in each
    ]
    assert metrics == ["penstock_flusher_held_bytes"]
    keda = of_kind(objects, "ScaledObject")["penstock-compactor"]["spec"]
    assert keda["scaleTargetRef"]["name"] in workloads
    assert "replicas" not in workloads["penstock-compactor"]["spec"]
    assert all(isinstance(value, str) for value in keda["triggers"][0]["metadata"].values())


def test_metrics_in_values_exist() -> None:
    page = (CHART.parents[2] / "docs" / "operating" / "metrics.md").read_text()
    text = (CHART / "values.yaml").read_text()
    names = set(re.findall(r"penstock_[a-z_]+", text))
    assert names >= {
        "penstock_gateway_held_bytes",
        "penstock_flusher_held_bytes",
        "penstock_compactor_waiting_segments",
    }
    assert not [name for name in names - {"penstock_audit"} if f"`{name}`" not in page]


def test_alerts_and_dashboards_are_those_of_the_repository(rendered: Render) -> None:
    objects = rendered("external-nats")
    assert of_kind(objects, "PrometheusRule")["penstock"]["spec"] == yaml.safe_load(Path(ALERTS).read_text())
    found = {
        name: text
        for each in of_kind(objects, "ConfigMap").values()
        for name, text in each["data"].items()
        if name.endswith(".json")
    }
    wanted = {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}
    assert {name: json.loads(text) for name, text in found.items()} == {
        name: json.loads(text) for name, text in wanted.items()
    }


def test_prometheus_finds_all_pods_with_the_labels_of_the_alerts(rendered: Render) -> None:
    objects = rendered("external-nats")
    monitor: dict[str, Any] = of_kind(objects, "ServiceMonitor")["penstock"]["spec"]
    services = [
        each
        for each in of_kind(objects, "Service").values()
        if matches(monitor["selector"]["matchLabels"], each["metadata"]["labels"])
    ]
    assert [each["metadata"]["name"] for each in services] == ["penstock-metrics"]
    assert services[0]["metadata"]["labels"][monitor["jobLabel"]] == "penstock"
    endpoint = monitor["endpoints"][0]
    assert endpoint["port"] == services[0]["spec"]["ports"][0]["name"]
    assert endpoint["authorization"]["credentials"] == {"name": "penstock-http", "key": "http-token"}
    assert [each["targetLabel"] for each in endpoint["relabelings"]] == ["service", "zone", "instance"]


def test_each_service_has_its_role_in_a_cloud(rendered: Render) -> None:
    accounts = of_kind(rendered("s3-irsa"), "ServiceAccount")
    roles = {
        name: each["metadata"]["annotations"]["eks.amazonaws.com/role-arn"][-5:] for name, each in accounts.items()
    }
    assert roles.pop("penstock-gateway") == roles.pop("penstock-cacher") == "-read"
    assert set(roles.values()) == {"write"}
    for name, template in pod_templates(own(rendered("s3-irsa"))).items():
        assert "administrator" in name or template["spec"]["serviceAccountName"] in accounts
    azure = pod_templates(own(rendered("azure-workload-identity")))
    labelled = {name for name, each in azure.items() if each["metadata"]["labels"].get("azure.workload.identity/use")}
    assert {name for name in azure if "administrator" not in name} == labelled


def test_the_notes_name_the_next_commands(tmp_path: Path) -> None:
    # `helm install` prints the notes, and needs a cluster. So an object of a copy of the chart has them.
    chart = Chart(tmp_path)
    (chart.folder / "templates" / "NOTES.txt").rename(chart.folder / "files" / "notes")
    (chart.folder / "templates" / "notes.yaml").write_text('text: {{ tpl (.Files.Get "files/notes") . | toJson }}')

    def notes(example: str) -> str:
        done = chart.run(*chart.template(example), "--show-only", "templates/notes.yaml")
        assert done.returncode == 0, done.stderr
        return yaml.safe_load(done.stdout)["text"]

    minimal = notes("minimal")
    assert "penstock-kafka.records.svc.cluster.local:9092 (SASL_SSL)" in minimal
    assert "kubectl --namespace records get pods" in minimal and "WARNING" not in minimal
    assert "WARNING: parts of this release use plain text" in notes("development")
    assert "kafka-b.example.com -> kubectl --namespace records get service penstock-external-b" in notes("three-zones")


@pytest.mark.skipif(not NATS_CHART, reason="PENSTOCK_NATS_CHART names no folder with the official chart of NATS")
def test_a_nats_server_accepts_the_configuration_of_the_official_chart(rendered: Render, tmp_path: Path) -> None:
    nodes = ",".join(f"penstock-nats-{number}.penstock-nats-headless" for number in range(3))
    secret = ["credentials", str(tmp_path), "--tls", "--kafka-hosts", "penstock-kafka", "--nats-nodes", nodes]
    assert main(secret) == 0
    (tmp_path / "nats").rename(tmp_path / "penstock-nats")
    text = of_kind(rendered("minimal"), "ConfigMap")["penstock-nats-config"]["data"]["nats.conf"]
    (tmp_path / "config").mkdir()
    written = tmp_path / "config" / "nats.conf"
    written.write_text(text.replace("/etc/", f"{tmp_path}/").replace('"/data"', f'"{tmp_path}/data"'))
    command = [Path(sys.executable).with_name("nats-server"), "-t", "-c", written]
    done = subprocess.run(command, env={"SERVER_NAME": "x"}, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    names = set(of_kind(rendered("minimal"), "StatefulSet"))
    assert "penstock-nats" in names  # as in the policies, and in the addresses of the services
