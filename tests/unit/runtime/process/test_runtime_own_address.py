"""This machine's address on the route to the nats servers, found without a packet and without blocking the loop."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.runtime.process.own_address import LOOPBACK, announced_address, own_address

ELSEWHERE = "nats://192.0.2.1:4222"  # a documentation address (RFC 5737): routed like any other, but unused


@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1:4222",
        "127.0.0.1:4222",
        "nats://user:secret@127.0.0.1",
        "nats://127.8.8.8:4222",
        "nats://[::1]:4222",
        "nats://nowhere.invalid:4222,nats://127.0.0.1:4222",
        "nats://nowhere.invalid:4222",
        "",
        "nats://",
        "nats://[::1",
        f"nats://{'x' * 300}:4222",
    ],
)
async def test_beside_a_server_on_loopback_or_without_any_it_is_the_loopback_address(url: str) -> None:
    assert await own_address(url) == LOOPBACK


async def test_it_is_an_address_of_this_machine_that_leads_back_to_it() -> None:
    own = await own_address(ELSEWHERE)
    with socket.socket() as probe:
        probe.bind((own, 0))
    assert await own_address(f"nats://{own}:4222") == own


async def test_the_first_reachable_server_decides() -> None:
    assert await own_address(f"nats://127.0.0.1:4222,{ELSEWHERE}") == LOOPBACK
    assert await own_address(f"nats://nowhere.invalid:4222, {ELSEWHERE}") == await own_address(ELSEWHERE)


async def test_an_ipv4_listener_never_gets_an_ipv6_address() -> None:
    def source_towards(_family: int, address: tuple[Any, ...]) -> str:
        return "fd00::2" if ":" in address[0] else ""

    assert await own_address("nats://[fd00::1]:4222", find_source=source_towards) == "fd00::2"
    assert await own_address("nats://[fd00::1]:4222", socket.AF_INET, find_source=source_towards) == LOOPBACK


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names under `.slow` are not resolved before the event is set."""
    released, resolve = threading.Event(), socket.getaddrinfo

    def resolve_slowly(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".slow"):
            assert released.wait(20), "the loop was blocked"
            host = "192.0.2.1"
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_slowly)
    yield released
    released.set()


async def test_the_loop_continues_while_a_name_is_resolved(slow_names: threading.Event) -> None:
    asyncio.get_running_loop().call_soon(slow_names.set)
    assert await own_address("nats://name.slow:4222") == await own_address(ELSEWHERE)


async def test_a_name_that_takes_too_long_is_skipped(slow_names: threading.Event) -> None:
    urls = "nats://name.slow:4222,nats://127.0.0.1:4222"
    assert await own_address(urls, resolve_deadline_s=0.02) == LOOPBACK
    assert not slow_names.is_set()
    slow_names.set()  # the loop waits for its threads before it closes


async def test_only_a_listener_on_all_addresses_is_announced_with_another_one() -> None:
    for address in ("127.0.0.1:8080", "10.1.2.3:80", "[::1]:8080"):
        assert await announced_address(address, ELSEWHERE) == address
    own = await own_address(ELSEWHERE)
    assert await announced_address("0.0.0.0:8080", ELSEWHERE) == (f"[{own}]:8080" if ":" in own else f"{own}:8080")
    assert await announced_address("[::]:8080", "nats://127.0.0.1:4222") == f"{LOOPBACK}:8080"
