"""A client that leaves while a thread works for it frees its place only when the thread has ended."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.kafkawire.records import Record, build_batch, read_batch_header
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.produce.limits import RecordLimits
from penstock_gateway.produce.record_validation import RecordRules, RecordValidator
from penstock_gateway.security.login.credentials import Verifiers
from penstock_gateway.security.login.plain_login import PasswordChecker, PasswordLimits
from penstock_gateway.server.limits import DecodingLimits
from penstock_gateway.telemetry.limits import TelemetryLimits
from tests.testkit.cancelling import turns
from tests.testkit.fakes.held_threads import HeldThreads
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import new_client, new_world
from tests.unit.gateway.security.gateway_logins import FakeUsers
from tests.unit.gateway.server.test_gateway_request_decoder import Gateway, metadata
from tests.unit.gateway.telemetry.gateway_telemetry import Reporter, subscribe
from tests.unit.gateway.telemetry.metrics_data import gauge, metrics_data, point

TURNS = 20  # of the loop: enough for a request to reach its thread, or its queue

Work = Callable[[], Coroutine[Any, Any, object]]  # of one client; it needs one thread


async def decoding() -> Work:
    gateway = Gateway(DecodingLimits(elements_steps=(4, 100)))
    gateway.may_end.set()
    return lambda: gateway.answer(new_client(), metadata(60))


async def encoding() -> Work:
    gateway = Gateway(DecodingLimits(encoded_at_once_max=-1))
    gateway.may_end.set()
    return lambda: gateway.answer(new_client(), metadata(1))


async def decompression() -> Work:
    validator = RecordValidator(RecordLimits(records_at_once_max=1))
    batch = build_batch([Record(number) for number in range(10)], codec=1)
    return lambda: validator.validation_error("t-0", batch, read_batch_header(batch), RecordRules())


async def checks_of_keys() -> Work:
    validator = RecordValidator(RecordLimits(records_at_once_max=1))
    batch = build_batch([Record(number, key=b"k") for number in range(10)])
    return lambda: validator.validation_error("t-0", batch, read_batch_header(batch), RecordRules(need_keys=True))


async def passwords() -> Work:
    users = FakeUsers()
    users.add("alice", "secret")
    checker = PasswordChecker(Verifiers(users, b"key"), b"k" * 32, PasswordLimits(at_once=1))
    return lambda: checker.is_right("alice", b"guess")


async def metrics() -> Work:
    world = new_world(limits=GatewayLimits(telemetry=TelemetryLimits(decoded_at_once_max=10)))
    await subscribe(world, metrics="*")
    reporters = [Reporter(world) for _ in range(2)]
    for each in reporters:
        await each.get()
    return lambda: reporters.pop().push(metrics_data(gauge("lag", point(7.5))))


@pytest.mark.parametrize("make", [decoding, encoding, decompression, checks_of_keys, passwords, metrics])
async def test_the_next_client_waits_for_the_thread_of_one_that_left(
    make: Callable[[], Coroutine[Any, Any, Work]],
) -> None:
    """Each kind of work has one thread at a time, because it takes much memory or processor time."""
    work = await make()
    threads = HeldThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    first = asyncio.create_task(work())
    await until(lambda: threads.open == 1)
    first.cancel()
    second = asyncio.create_task(work())
    await turns(TURNS)
    threads.may_go_on.set()
    await second
    assert first.cancelled()
    assert threads.open_max == 1


async def test_the_memory_of_a_large_request_is_reserved_until_its_thread_has_ended() -> None:
    gateway = Gateway()
    threads = HeldThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    request = gateway.send(new_client(), metadata(60))
    await until(lambda: threads.open == 1)
    request.cancel()
    await turns(TURNS)
    reserved_bytes = gateway.dispatcher.decoder.reserved_bytes
    threads.may_go_on.set()
    await asyncio.wait([request])
    assert request.cancelled()
    assert reserved_bytes > 0
    assert gateway.dispatcher.decoder.reserved_bytes == 0
