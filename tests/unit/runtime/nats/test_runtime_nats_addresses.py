"""Addresses of nats servers in errors and logs never show their secrets."""

import pytest

from penstock.contracts.errors import Invalid
from penstock.runtime.nats.client import checked_server, without_password


@pytest.mark.parametrize(
    "address",
    ["nats://u:s3cret/s3cret@h:4222", "u:s3cret@h:port", "nats://u:s3cret@h:port/x", "nats://u:s3cret://s3cret@h:port"],
)
def test_the_error_of_an_invalid_address_does_not_show_its_secret(address: str) -> None:
    with pytest.raises(Invalid, match="the address of a nats server must be nats://host:port") as rejected:
        checked_server(address)
    assert "s3cret" not in str(rejected.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("nats://h:4222", "nats://h:4222"),
        ("tls://u:s3cret@h:4222", "tls://***@h:4222"),
        ("nats://u:s3@cret@h:4222", "nats://***@h:4222"),
        ("u:s3cret@h:4222", "***@h:4222"),
        ("nats://u:s3cret@h1,nats://u:s3cret@h2, h3:4222", "nats://***@h1,nats://***@h2, h3:4222"),
        ("nats://u:s3,cret@h1:4222", "nats://***@h1:4222"),
    ],
)
def test_an_address_is_shown_with_its_servers_and_without_its_secrets(address: str, shown: str) -> None:
    assert without_password(address) == shown
