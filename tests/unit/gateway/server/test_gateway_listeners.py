"""The settings of listeners: their meaning, and one clear sentence for each invalid setting."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.errors import Invalid
from penstock.contracts.messages import ListenerAddress
from penstock.runtime.process.config import read_config
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.listener_config import ListenerSpec, advertised_address, host_and_port, parse_listeners

OWN_HOST = "10.0.0.7"


def only(listeners: str, advertised: str = "") -> ListenerSpec:
    (spec,) = parse_listeners(listeners, advertised)
    return spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ListenerSpec("PLAINTEXT", "127.0.0.1", 9092)),
        ("EXTERNAL://0.0.0.0:0", ListenerSpec("EXTERNAL", "0.0.0.0", 0)),
        ("A://[::]:9092", ListenerSpec("A", "::", 9092)),
        ("A://[::1]:9092", ListenerSpec("A", "::1", 9092)),
        ("A://kafka-1.example_net.com:65535", ListenerSpec("A", "kafka-1.example_net.com", 65535)),
        (" internal_2-x://h:1 ", ListenerSpec("INTERNAL_2-X", "h", 1)),
        ("PLAINTEXT://:9092", ListenerSpec("PLAINTEXT", "0.0.0.0", 9092)),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, spec: ListenerSpec) -> None:
    assert only(text) == spec


def test_several_listeners_keep_their_order_and_may_share_port_0() -> None:
    found = parse_listeners("B://127.0.0.1:0,A://127.0.0.1:0,\n C://0.0.0.0:9092", "")
    assert [(each.name, each.port) for each in found] == [("B", 0), ("A", 0), ("C", 9092)]


def test_only_advertised_listeners_have_another_address() -> None:
    inside, outside = parse_listeners("INTERNAL://0.0.0.0:9092,EXTERNAL://0.0.0.0:9093", "external://localhost:9092")
    assert inside.advertised is None
    assert outside.advertised == ListenerAddress("EXTERNAL", "localhost", 9092)


@pytest.mark.parametrize(
    ("listeners", "advertised", "sentence"),
    [
        ("", "", "listeners must have at least one address"),
        ("  ", "", "listeners must have at least one address"),
        ("127.0.0.1:9092", "", "listeners must be NAME://host:port, separated by commas: '127.0.0.1:9092'"),
        ("A://h", "", "listeners must be NAME://host:port"),
        ("A://h:", "", "listeners must be NAME://host:port"),
        ("A://h:x", "", "listeners must be NAME://host:port"),
        ("A://h:-1", "", "listeners must be NAME://host:port"),
        ("A://h:²", "", "listeners must be NAME://host:port"),
        ("A://h:1/", "", "listeners must be NAME://host:port"),
        ("A://h:1,", "", "listeners must be NAME://host:port, separated by commas: ''"),
        ("A://h:1;B://h:2", "", "listeners must be NAME://host:port"),
        ("A://::1:9092", "", "an IPv6 address stands in brackets"),
        ("A://h:65536", "", "a port is at most 65535"),
        ("://h:1", "", "a name is a letter"),
        ("1A://h:1", "", "a name is a letter"),
        ("A B://h:1", "", "a name is a letter"),
        ("Ä://h:1", "", "a name is a letter"),
        ("A" * 65 + "://h:1", "", "at most 63"),
        ("A://h h:1", "", "'h h' is no valid host"),
        ("A://[h]:1", "", "'h' is no valid host"),
        ("A://[127.0.0.1]:1", "", "'127.0.0.1' is no valid host"),
        ("A://[]:1", "", "'' is no valid host"),
        ("A://h:1,a://h:2", "", "listeners must have different names: A occurs twice"),
        ("A://h:1,B://other:1", "", "listeners must have different ports: 1 occurs twice"),
        ("A://h:1", "B://h:1", "B is no listener; there are A"),
        ("A://h:1", "A://h:1,A://h:2", "advertised listeners must have different names"),
        ("A://h:1", "A://0.0.0.0:1", "clients cannot connect to the host '0.0.0.0' of A"),
        ("A://h:1", "A://[::]:1", "clients cannot connect to the host '::' of A"),
        ("A://h:1", "A://:1", "clients cannot connect to the host '' of A"),
        ("A://h:1", "A://h:0", "clients cannot connect to port 0 of A"),
        ("A://h:1", "h:1", "advertised listeners must be NAME://host:port"),
    ],
)
def test_an_invalid_setting_is_rejected_in_one_sentence(listeners: str, advertised: str, sentence: str) -> None:
    with pytest.raises(Invalid) as rejected:
        parse_listeners(listeners, advertised)
    assert sentence in str(rejected.value)
    assert "\n" not in str(rejected.value)


@given(st.text(), st.text())
def test_any_text_is_parsed_or_rejected(listeners: str, advertised: str) -> None:
    for texts in ((listeners, advertised), (f"A://{listeners}:1", ""), ("A://h:1", f"A://{advertised}:1")):
        try:
            parse_listeners(*texts)
        except Invalid as rejected:
            assert str(rejected)


def test_invalid_settings_keep_the_gateway_from_starting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_config(GatewayConfig, ["--listeners", "A://h:1,A://h:2"], {}, program="gateway")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "gateway: listeners must have different names: A occurs twice\n"


def test_the_checks_of_every_service_hold_for_the_gateway_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_config(GatewayConfig, ["--log-level", "loud"], {}, program="gateway")
    assert "log level" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listeners", "advertised", "address"),
    [
        ("A://127.0.0.1:0", "", ListenerAddress("A", "127.0.0.1", 4711)),
        ("A://localhost:0", "", ListenerAddress("A", "localhost", 4711)),
        ("A://0.0.0.0:0", "", ListenerAddress("A", OWN_HOST, 4711)),
        ("A://[::]:0", "", ListenerAddress("A", OWN_HOST, 4711)),
        ("A://[0:0::0]:0", "", ListenerAddress("A", OWN_HOST, 4711)),
        ("A://0.0.0.0:0", "A://proxy:9092", ListenerAddress("A", "proxy", 9092)),
    ],
)
def test_clients_get_an_address_that_they_can_connect_to(
    listeners: str, advertised: str, address: ListenerAddress
) -> None:
    assert advertised_address(only(listeners, advertised), 4711, OWN_HOST) == address


def test_an_address_is_written_as_it_is_read() -> None:
    assert host_and_port("::1", 9092) == "[::1]:9092"
    assert host_and_port("localhost", 9092) == "localhost:9092"
