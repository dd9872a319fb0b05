"""Errors about the address of a nats server: a reason for people, and never the secret in the address."""

import asyncio

import pytest

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.nats.client import NatsLimits, checked_server, connect_nats, without_password


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


async def test_the_error_about_a_server_that_never_answers_has_a_reason() -> None:
    connections = []
    accepting = await asyncio.start_server(lambda *streams: connections.append(streams), "127.0.0.1", 0)
    host, port = accepting.sockets[0].getsockname()
    limits = NatsLimits(connect_deadline_s=0.5, connect_attempt_s=0.1)
    with pytest.raises(Unavailable, match=f"^no nats server at nats://{host}:{port}: it does not answer; check "):
        await connect_nats(f"nats://{host}:{port}", name="test", limits=limits)
    assert connections
    for _, writer in connections:
        writer.close()
    accepting.close()
