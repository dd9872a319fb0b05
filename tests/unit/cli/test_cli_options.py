"""The flags of `penstock up`: valid values, and one sentence for each invalid value."""

import argparse
import socket
from pathlib import Path

import pytest

from penstock.cli.data_folder import take_folder
from penstock.cli.ports import Address, check_port_is_free, parse_address
from penstock.cli.up.options import add_flags, read_options
from penstock.contracts.errors import Invalid


def options(*arguments: str) -> object:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_options(parser.parse_args(arguments))


def test_without_flags_everything_is_in_a_folder_here() -> None:
    found = options()
    assert found.data == Path.cwd() / "penstock-data"
    assert found.store == f"file://{Path.cwd()}/penstock-data/objects"
    assert str(found.kafka) == "127.0.0.1:9092"
    assert str(found.http) == "127.0.0.1:8080"
    assert (found.gateways, found.flushers, found.sequencers, found.cachers) == (1, 1, 1, 1)


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
    [("--flush-ms", "4"), ("--flush-ms", "60001"), ("--gateways", "0"), ("--cachers", "65"), ("--sequencers", "-1")],
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
