"""The flags of `penstock up`: valid values, and one sentence for each invalid value."""

import argparse
import contextlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock.cli.data_folder import own_store, record_store, recorded_store, take_folder
from penstock.cli.ports import Address, check_port_is_free, parse_address
from penstock.cli.up.command import with_ports
from penstock.cli.up.options import UpOptions, add_flags, read_options
from penstock.cli.up.specs import Specs
from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import read_config
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.cluster_choice import parse_listener_clusters
from penstock_gateway.kafka.listener_config import parse_listeners

NO_ENVIRONMENT: dict[str, str] = {}


def no_route(_family: int, _address: object) -> str:
    return ""


def route(source: str) -> Callable[[int, object], str]:
    return lambda family, _address: source if (":" in source) == (family == socket.AF_INET6) else ""


def options(
    *arguments: str,
    environ: Mapping[str, str] = NO_ENVIRONMENT,
    find_source: Callable[[int, object], str] = no_route,
    cores: int = 2,
) -> UpOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_options(parser.parse_args(arguments), environ, find_source, cores=cores)


def test_without_flags_everything_is_in_a_folder_here() -> None:
    found = options()
    assert found.data == Path.cwd() / "penstock-data"
    assert found.store == f"file://{Path.cwd()}/penstock-data/objects"
    assert str(found.kafka) == "127.0.0.1:9092"
    assert str(found.http) == "127.0.0.1:8080"
    assert (found.gateways, found.flushers, found.sequencers, found.cachers) == (1, 1, 0, 1)
    assert (found.cluster, found.advertised, found.warnings) == ("default", None, ())


def test_agents_are_gateways_flushers_and_cachers() -> None:
    found = options("--agents", "2")
    assert (found.agents, found.gateways, found.flushers, found.cachers, found.sequencers) == (2, 2, 2, 2, 1)
    specs = Specs(found, 4333, 4334)
    agents = specs.services("agent")
    assert [each.name for each in agents] == ["agent-1", "agent-2"]
    assert agents[0].argv[1:] == ["-m", "penstock.cli", "agent", "--roles", "flusher,cacher,gateway"]
    assert agents[0].env["PENSTOCK_LISTENERS"] == "PLAINTEXT://127.0.0.1:9092"
    assert agents[0].env["PENSTOCK_FLUSH_INTERVAL_MS"] == "250"


def test_the_only_agent_is_also_the_sequencer_unless_sequencers_are_asked_for() -> None:
    (agent,) = Specs(options("--agents", "1"), 4333, 4334).services("agent")
    assert agent.argv[-1] == "sequencer,flusher,cacher,gateway"
    assert agent.roles == ("sequencer", "flusher", "cacher", "gateway")
    assert agent.env["PENSTOCK_NATS_MONITOR_URL"] == "http://127.0.0.1:4334"
    assert not Specs(options("--agents", "1"), 4333, 4334).services("sequencer")
    specs = Specs(options("--agents", "1", "--sequencers", "2"), 4333, 4334)
    assert [each.name for each in specs.services("sequencer")] == ["sequencer-1", "sequencer-2"]
    assert specs.services("agent")[0].argv[-1] == "flusher,cacher,gateway"
    for shape in (("--agents", "2"), ("--separate",)):
        with pytest.raises(Invalid, match="--sequencers 0 needs exactly one agent"):
            options(*shape, "--sequencers", "0")


def test_small_is_one_agent_with_all_roles() -> None:
    specs = Specs(options("--small"), 4333, 4334)
    (agent,) = specs.services("agent")
    assert agent.roles == ("sequencer", "flusher", "cacher", "janitor", "compactor", "gateway")
    assert agent.env["PENSTOCK_CACHE_BYTES_MAX"] == str(16 * 2**20)
    assert [specs.count(role) for role in ("agent", "sequencer", "janitor", "compactor")] == [1, 0, 0, 0]
    (alone,) = Specs(options("--small", "--janitors", "0", "--compactors", "0"), 4333, 4334).services("agent")
    assert alone.roles == ("sequencer", "flusher", "cacher", "gateway")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--cachers", "1"), "leave out --cachers"),
        (("--sequencers", "1"), "leave out --sequencers"),
        (("--janitors", "2"), "--janitors must be from 0 to 1: 2"),
    ],
)
def test_small_has_one_process_for_everything(arguments: tuple[str, str], error: str) -> None:
    with pytest.raises(Invalid, match=error):
        options("--small", *arguments)


def test_port_0_is_a_free_port_that_is_also_advertised() -> None:
    found = options("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--advertise", "localhost")
    with contextlib.ExitStack() as stack:
        first, second = with_ports(found, stack), with_ports(found, stack)
    ports = {each.port for options in (first, second) for each in (options.kafka, options.http)}
    assert (len(ports), 0 in ports) == (4, False)
    assert first.advertised == Address("localhost", first.kafka.port)


@pytest.mark.parametrize(("cores", "agents"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (8, 4), (64, 4)])
def test_by_default_there_is_an_agent_for_each_two_cores(cores: int, agents: int) -> None:
    found = options(cores=cores)
    assert (found.agents, found.gateways, found.flushers, found.cachers) == (agents, agents, agents, agents)
    assert (found.sequencers, found.compactors, found.janitors) == (int(agents > 1), 1, 1)


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        (("--separate",), (1, 1, 1)),
        (("--gateways", "2"), (2, 1, 1)),
        (("--separate", "--flushers", "3"), (1, 3, 1)),
        (("--cachers", "2"), (1, 1, 2)),
    ],
)
def test_separate_services_have_processes_of_their_own(arguments: tuple[str, ...], counts: tuple[int, ...]) -> None:
    found = options(*arguments)
    assert (found.agents, found.gateways, found.flushers, found.cachers) == (0, *counts)
    specs = Specs(found, 4333, 4334)
    assert [each.name for each in specs.services("gateway")] == [f"gateway-{n + 1}" for n in range(counts[0])]
    assert specs.services("agent") == []


def test_agents_and_separate_services_exclude_each_other() -> None:
    with pytest.raises(SystemExit):
        options("--agents", "1", "--separate")


@pytest.mark.parametrize("flag", ["--gateways", "--flushers", "--cachers"])
def test_services_that_agents_have_too_are_not_counted_beside_agents(flag: str) -> None:
    with pytest.raises(Invalid, match=f"leave out {flag}"):
        options("--agents", "1", flag, "1")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:9092", Address("::1", 9092)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address) -> None:
    assert parse_address("--kafka", text) == address


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", ":9092", "host:0", "host:65536", "host:x", "host:-1", "host:²"]
)
def test_an_invalid_address_is_rejected_with_its_flag(text: str) -> None:
    with pytest.raises(Invalid, match="--kafka"):
        parse_address("--kafka", text)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--agents", "0"),
        ("--flush-ms", "4"),
        ("--flush-ms", "60001"),
        ("--gateways", "0"),
        ("--cachers", "65"),
        ("--sequencers", "-1"),
    ],
)
def test_a_number_out_of_range_is_rejected_with_its_flag(flag: str, value: str) -> None:
    with pytest.raises(Invalid, match=flag):
        options(flag, value)


def test_a_port_in_use_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(Invalid, match="another program"):
            check_port_is_free("--kafka", address)
    check_port_is_free("--kafka", address)


def test_a_host_of_another_machine_is_rejected() -> None:
    with pytest.raises(Invalid, match="--kafka"):
        check_port_is_free("--kafka", Address("192.0.2.1", 9092))


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    with take_folder(tmp_path / "data"), pytest.raises(Invalid, match="another penstock"):
        take_folder(tmp_path / "data")
    take_folder(tmp_path / "data").close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match=str(tmp_path / "file" / "data")):
        take_folder(tmp_path / "file" / "data")
    with pytest.raises(Invalid, match=f"{tmp_path / 'file'}: it is no folder; choose another one with --data"):
        take_folder(tmp_path / "file")


@pytest.mark.parametrize("store", ["memory://x", "memory:x"])
def test_a_store_in_memory_is_rejected_because_it_keeps_nothing(store: str) -> None:
    with pytest.raises(Invalid, match="the next start has no records; use file:///DIR"):
        options("--store", store)


@pytest.mark.parametrize("store", ["/just/a/path", "gopher://x", "file:x"])
def test_a_store_of_no_known_kind_is_rejected_with_what_is_possible(store: str) -> None:
    with pytest.raises(Invalid, match="--store must be file:///DIR, s3://BUCKET/PREFIX"):
        options("--store", store)


def test_a_relative_folder_of_objects_becomes_absolute_for_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given, folder in (("file://./objects", "objects"), ("file://a b", "a%20b"), ("file://a%20b", "a%20b")):
        found = options("--store", given)
        assert found.store == f"file://{tmp_path}/{folder}"
        (gateway,) = Specs(found, 1, 1).services("gateway")
        assert gateway.env["PENSTOCK_STORE_URL"] == found.store
    assert options("--data", "c%20d").store == f"file://{tmp_path}/c%2520d/objects", "a folder may have any name"


def test_the_store_of_the_last_start_is_that_of_the_next_without_its_keys(tmp_path: Path) -> None:
    assert recorded_store(tmp_path) == own_store(tmp_path) == f"file://{tmp_path}/objects"
    record_store(tmp_path, "s3://b/p?endpoint=http://127.0.0.1:1&access_key=k&secret_key=hidden")
    assert "hidden" not in (tmp_path / "store").read_text()
    assert options("--data", str(tmp_path)).store == "s3://b/p?endpoint=http%3A%2F%2F127.0.0.1%3A1"
    record_store(tmp_path, own_store(tmp_path))
    assert not (tmp_path / "store").exists(), "the folder may be moved"


def test_the_cluster_comes_from_its_flag_else_from_the_environment() -> None:
    environ = {"PENSTOCK_CLUSTER": "blue", "PENSTOCK_CLUSTERS": "*"}
    for found, name in (
        (options("--separate", environ=environ), "blue"),
        (options("--separate", "--cluster", "red", environ=environ), "red"),
    ):
        assert found.cluster == name
        for role in ("gateway", "flusher", "sequencer", "cacher"):
            [spec] = Specs(found, 1, 1).services(role)
            assert (spec.env["PENSTOCK_CLUSTER"], spec.env["PENSTOCK_CLUSTERS"]) == (name, "")
    with pytest.raises(Invalid, match="cluster"):
        options(environ={"PENSTOCK_CLUSTER": "not a name"})


def test_each_of_several_clusters_has_its_own_port() -> None:
    found = options("--cluster", "red, blue,red", "--kafka", "127.0.0.1:9000", "--agents", "1")
    [spec] = Specs(found, 1, 1).services("agent")
    config = read_config(GatewayConfig, [], spec.env, program="gateway")
    assert (config.cluster, config.cluster_names) == ("red", ["red", "blue"])
    listeners = parse_listeners(config.listeners, config.advertised_listeners)
    chosen = parse_listener_clusters(config.listener_clusters, [each.name for each in listeners])
    assert {each.port: chosen[each.name] for each in listeners} == {9000: "red", 9001: "blue"}
    assert set(config.listener_securities()) == {each.name for each in listeners}
    with pytest.raises(Invalid, match="not enough ports"):
        options("--cluster", "red,blue", "--kafka", "127.0.0.1:65535")
    with pytest.raises(Invalid, match="--secure makes users of one cluster: leave out blue"):
        options("--cluster", "red,blue", "--secure")


@pytest.mark.parametrize(
    ("arguments", "source", "advertised", "warns"),
    [
        (["--kafka", "192.0.2.7:9092"], "10.0.0.5", "", ""),
        (["--kafka", "0.0.0.0:9093"], "10.0.0.5", "10.0.0.5:9093", "if they cannot reach it"),
        (["--kafka", "0.0.0.0:9093"], "fd00::5", "127.0.0.1:9093", "works only here"),
        (["--kafka", "[::]:9093"], "fd00::5", "[fd00::5]:9093", "if they cannot reach it"),
        (["--kafka", "[::]:9093"], "10.0.0.5", "10.0.0.5:9093", "if they cannot reach it"),
        (["--kafka", "0.0.0.0:9093", "--advertise", "kafka.example"], "10.0.0.5", "kafka.example:9093", ""),
        (["--kafka", "0.0.0.0:9093", "--advertise", "[fd00::7]"], "10.0.0.5", "[fd00::7]:9093", ""),
        (["--advertise", "kafka.example:19092"], "10.0.0.5", "kafka.example:19092", ""),
    ],
)
def test_clients_are_sent_to_an_address_that_they_can_reach(
    arguments: list[str], source: str, advertised: str, warns: str
) -> None:
    found = options(*arguments, "--insecure", find_source=route(source))
    assert str(found.advertised or "") == advertised
    others = [text for text in found.warnings if "--insecure" not in text]
    assert warns in others[0] if warns else not others
    (gateway,) = Specs(found, 1, 1).services("gateway")
    assert gateway.env["PENSTOCK_ADVERTISED_LISTENERS"] == (f"PLAINTEXT://{advertised}" if advertised else "")


@pytest.mark.parametrize("advertise", ["0.0.0.0", "[::]:9092", "host:", ":9092", "host:0"])
def test_an_address_that_no_client_can_use_is_not_advertised(advertise: str) -> None:
    with pytest.raises(Invalid, match="--advertise"):
        options("--insecure", "--kafka", "0.0.0.0:9092", "--advertise", advertise)
