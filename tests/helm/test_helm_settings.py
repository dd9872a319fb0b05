"""The settings of the chart: each reaches its variable, and each service accepts all its variables."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
import yaml

from penstock.cli import main
from penstock.clusters import ClusterQuotas, ClusterRecord, ClusterRegistry
from penstock.objectstore import open_store
from penstock.runtime.process.config import HostingConfig, environment_variable, read_configs, settings_of
from tests.helm.conftest import EXAMPLE_NAMES, JOBS, Render
from tests.testkit.docs.chart import CHART, MADE, SECRET, camel_case, settings_of_chart
from tests.testkit.docs.settings import CONFIGS
from tests.testkit.helm import Chart, Object, pod_templates, variables

pytestmark = pytest.mark.helm

AGENT_ROLES = ("gateway", "flusher", "cacher")
SERVICES = [name for name in CONFIGS if name != "service"]


class ComposeLoader(yaml.SafeLoader):
    """YAML with the tags of compose files."""


ComposeLoader.add_constructor("!reset", lambda _loader, _node: None)


def service_of(template: Object) -> str:
    return str(template["metadata"]["labels"]["app.kubernetes.io/component"])


def kinds_of(service: str) -> list[Any]:
    return [CONFIGS[role] for role in (AGENT_ROLES if service == "agent" else (service,))]


def distinct(name: str, hint: Any, number: int) -> Any:
    """A value that no other setting has and that is not the default; booleans are true."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    metas = [each for each in get_args(hint)[1:] if isinstance(each, msgspec.Meta)]
    least = max((each.ge or 0 for each in metas), default=0)
    most = min((each.le for each in metas if each.le is not None), default=2**40)
    if kind is int:  # large ones, too: they must not get an exponent
        return min(least + 268_435_456 + number, most)
    return {bool: True, float: 0.001 * (number + 1), str: f"{name}: 'of' <{number}> \"&\" $x"}[kind]


def text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()


@pytest.mark.parametrize("service", SERVICES)
def test_each_setting_reaches_its_variable(chart: Chart, service: str) -> None:
    hints = settings_of_chart(service)
    settings = {name: distinct(name, hint, number) for number, (name, hint) in enumerate(hints.items())}
    settings |= {"journal_replicas": 2} if service == "sequencer" else {}
    objects = chart.render("minimal", {service: {"settings": settings}})
    found = next(variables(each) for each in pod_templates(objects).values() if service_of(each) == service)
    assert {name: found[environment_variable(name)] for name in settings} == {
        name: text(value) for name, value in settings.items()
    }


def test_every_setting_is_in_the_chart() -> None:
    """Each setting of each service can be set, except those that the chart makes or that are secret."""
    for service in SERVICES:
        names = {each.name for each in settings_of(CONFIGS[service])}
        assert set(settings_of_chart(service)) == names - MADE - SECRET
    known = {each.name for service in SERVICES for each in settings_of(CONFIGS[service])}
    assert known >= MADE | SECRET


def test_agents_take_the_settings_of_their_roles(rendered: Render) -> None:
    found = variables(pod_templates(rendered("agents"))["penstock-agent-z1"])
    assert found["PENSTOCK_SHARE_GROUPS"] == "true"
    assert found["PENSTOCK_FLUSH_INTERVAL_MS"] == "200"
    assert found["PENSTOCK_AUTHORIZER"] == "on"


def test_a_setting_of_a_service_wins_over_one_of_all(chart: Chart) -> None:
    objects = chart.render(
        "minimal", {"settings": {"log_level": "warning"}, "flusher": {"settings": {"log_level": "debug"}}}
    )
    levels = {name: variables(each).get("PENSTOCK_LOG_LEVEL") for name, each in pod_templates(objects).items()}
    assert levels["penstock-flusher-z1"] == "debug" and levels["penstock-cacher-z1"] == "warning"


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_no_variable_is_unknown(rendered: Render, example: str) -> None:
    for name, template in pod_templates(rendered(example)).items():
        service = service_of(template)
        if service == "nats":
            continue
        kinds = kinds_of("sequencer" if service in JOBS else service)
        known = {each.variable for kind in kinds for each in settings_of(kind)}
        assert {each for each in variables(template) if each.startswith("PENSTOCK_")} <= known, name


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The folders of `penstock credentials` by the names of the Secrets that docs/operating/kubernetes.md makes."""
    folder = tmp_path_factory.mktemp("credentials")
    assert main(["credentials", str(folder), "--tls", "--http-token", "--kafka-hosts", "penstock-kafka"]) == 0
    kafka = folder / "kafka-tls"
    kafka.mkdir()
    (kafka / "tls.crt").write_bytes((folder / "gateway" / "kafka.pem").read_bytes())
    (kafka / "tls.key").write_bytes((folder / "gateway" / "kafka-key.pem").read_bytes())
    return {f"penstock-{path.name}": path for path in folder.iterdir()}


def in_place(template: Object, secrets: Mapping[str, Path]) -> dict[str, str]:
    """The variables of a pod, with the folders of Secrets in place of their mounts. Each named file must exist."""
    spec = template["spec"]
    sources = {each["name"]: each["secret"]["secretName"] for each in spec.get("volumes", []) if "secret" in each}
    mounts = {
        each["mountPath"]: secrets[sources[each["name"]]]
        for each in spec["containers"][0].get("volumeMounts", [])
        if each["name"] in sources
    }
    found = variables(template)
    for name, value in found.items():
        for mount, folder in mounts.items():
            if value.startswith(f"{mount}/"):
                found[name] = str(folder / value.removeprefix(f"{mount}/"))
                assert Path(found[name]).is_file(), f"{name}: no {value} in {folder.name}"
        assert not found[name].startswith("/run/"), f"{name} names a file that is not mounted: {value}"
    return found


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_each_service_accepts_its_variables(rendered: Render, example: str, secrets: Mapping[str, Path]) -> None:
    """With the files of `penstock credentials`, by the function with which the service itself reads them."""
    for template in pod_templates(rendered(example)).values():
        service = service_of(template)
        if service == "nats" or service in JOBS:
            continue
        environ = in_place(template, secrets)
        for config in read_configs(kinds_of(service), [], environ, program=service):
            assert config.zone == environ["PENSTOCK_ZONE"]
            assert config.nats_user == ("" if example == "development" else service)
            assert (config.http_host, config.http_port) == ("0.0.0.0", 8080)


def test_kafka_is_secure_unless_the_operator_wants_plain_text(rendered: Render, secrets: Mapping[str, Path]) -> None:
    environ = in_place(pod_templates(rendered("minimal"))["penstock-gateway-z1"], secrets)
    [config] = read_configs([CONFIGS["gateway"]], [], environ, program="gateway")
    assert config.login_listeners() == {"INTERNAL": True}
    assert (config.authorizer, config.audit, config.super_users) == ("on", "on", "User:admin")
    assert config.tokens().secret_key_file
    environ = in_place(pod_templates(rendered("three-zones"))["penstock-gateway-a"], secrets)
    [config] = read_configs([CONFIGS["gateway"]], [], environ, program="gateway")
    assert config.login_listeners() == {"INTERNAL": True, "EXTERNAL": True}


def test_the_administrator_gets_its_password_over_nats(rendered: Render, secrets: Mapping[str, Path]) -> None:
    name = next(name for name in pod_templates(rendered("minimal")) if "administrator" in name)
    template = pod_templates(rendered("minimal"))[name]
    assert re.fullmatch(r"penstock-administrator-[0-9a-f]{8}", name)
    environ = in_place(template, secrets)
    assert environ["PENSTOCK_NATS_URL"] == "tls://penstock-nats:4222"
    composed = yaml.load((CHART.parents[2] / "compose.secure.yaml").read_text(), ComposeLoader)
    assert template["spec"]["containers"][0]["command"] == composed["services"]["administrator"]["entrypoint"]
    assert (secrets["penstock-client"] / "password").is_file()


def test_a_job_creates_each_cluster_with_its_names_and_quotas(
    chart: Chart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands run here, against a store in a folder, twice: the second time with other values."""
    monkeypatch.setenv("PENSTOCK_STORE_URL", f"file://{tmp_path}/objects")
    monkeypatch.setenv("PENSTOCK_NATS_URL", "nats://127.0.0.1:1")
    quotas = {name: number for number, name in enumerate(ClusterQuotas.__struct_fields__, 1)}
    for orders in (
        ClusterRecord(name="orders", created_id="", created_ms=0, tenants=("acme", "x-y")),
        ClusterRecord(
            name="orders",
            created_id="",
            created_ms=0,
            server_names=("a.example.com", "b.example.com"),
            quotas=ClusterQuotas(**quotas),
        ),
    ):
        wanted = {"name": "orders", "serverNames": list(orders.server_names), "tenants": list(orders.tenants)}
        wanted["quotas"] = {camel_case(name): getattr(orders.quotas, name) for name in quotas}
        objects = chart.render("minimal", {"clusters": [{"name": "default"}, wanted]})
        [spec] = [each["spec"] for each in pod_templates(objects).values() if service_of(each) == "clusters"]
        for container in (*spec["initContainers"], *spec["containers"]):
            assert container["command"][:3] == ["python", "-m", "penstock.cli"]
            assert main(container["command"][3:]) == 0
        records = {each.name: each for each in asyncio.run(registered(tmp_path))}
        made = msgspec.structs.replace(records.pop("orders"), created_id="", created_ms=0)
        assert made == orders and set(records) == {"default"}


async def registered(folder: Path) -> list[ClusterRecord]:
    store = await open_store(f"file://{folder}/objects")
    found = await ClusterRegistry(store).read_all()
    await store.close()
    return [each.record for each in found]


def test_services_of_many_clusters_follow_the_registry_and_accept_it(rendered: Render) -> None:
    for example in ("clusters", "minimal"):
        found = {service_of(each): variables(each) for each in pod_templates(rendered(example)).values()}
        hosting = {service for service, given in found.items() if given.get("PENSTOCK_CLUSTERS") == "*"}
        wanted = {name for name, kind in CONFIGS.items() if issubclass(kind, HostingConfig)}
        assert hosting == (wanted if example == "clusters" else set())
    agents = pod_templates(rendered("agents"))
    assert "PENSTOCK_CLUSTERS" not in variables(agents["penstock-agent-z1"])


def test_another_pod_of_the_administrator_is_another_job(chart: Chart, rendered: Render) -> None:
    """A Job cannot change, so an upgrade with another image needs another name."""

    def job(objects: list[Object]) -> str:
        return next(each["metadata"]["name"] for each in objects if each["kind"] == "Job")

    assert job(chart.render("minimal", {"image": {"tag": "2.0"}})) != job(rendered("minimal"))
