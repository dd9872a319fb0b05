"""A key is loaded once at a time for all readers. A reader that leaves does not harm the other readers."""

import asyncio

import pytest

from penstock.contracts.errors import Unavailable
from penstock.runtime.concurrency.single_flight import SingleFlight


class Loads:
    """Loads that end when the test ends them."""

    def __init__(self) -> None:
        self.ends: list[asyncio.Future[str]] = []

    async def load(self, key: str) -> str:
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        return await end


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_hundred_readers_make_one_load() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    readers = [asyncio.create_task(flight.get("k", lambda: loads.load("k"))) for _ in range(100)]
    await some_turns()
    assert len(loads.ends) == 1
    loads.ends[0].set_result("bytes")
    assert await asyncio.gather(*readers) == ["bytes"] * 100
    assert len(flight) == 0


async def test_a_failed_load_fails_all_waiting_readers_and_is_not_kept() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    readers = [asyncio.create_task(flight.get("k", lambda: loads.load("k"))) for _ in range(3)]
    await some_turns()
    loads.ends[0].set_exception(Unavailable("no answer"))
    ends = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(end) for end in ends] == [Unavailable] * 3
    again = asyncio.create_task(flight.get("k", lambda: loads.load("k")))
    await some_turns()
    assert len(loads.ends) == 2
    loads.ends[1].set_result("bytes")
    assert await again == "bytes"


async def test_a_reader_that_leaves_does_not_end_the_load_for_the_others() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    first, second = (asyncio.create_task(flight.get("k", lambda: loads.load("k"))) for _ in range(2))
    await some_turns()
    first.cancel()
    await some_turns()
    loads.ends[0].set_result("bytes")
    assert await second == "bytes"
    assert first.cancelled()


async def test_a_load_that_fails_without_waiting_readers_is_quiet() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    reader = asyncio.create_task(flight.get("k", lambda: loads.load("k")))
    await some_turns()
    reader.cancel()
    await some_turns()
    loads.ends[0].set_exception(Unavailable("no answer"))
    await some_turns()
    assert len(flight) == 0


async def test_different_keys_are_loaded_side_by_side() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    readers = [asyncio.create_task(flight.get(key, lambda: loads.load("any"))) for key in "ab"]
    await some_turns()
    for end, value in zip(loads.ends, ("1", "2"), strict=True):
        end.set_result(value)
    assert await asyncio.gather(*readers) == ["1", "2"]


async def test_closing_ends_the_loads() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    reader = asyncio.create_task(flight.get("k", lambda: loads.load("k")))
    await some_turns()
    await flight.close()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert len(flight) == 0


async def test_a_shared_load_continues_while_a_reader_waits() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    first, second = (asyncio.create_task(flight.share("k", lambda: loads.load("k"))) for _ in range(2))
    await some_turns()
    first.cancel()
    await some_turns()
    loads.ends[0].set_result("bytes")
    assert await second == "bytes"
    assert len(loads.ends) == 1
    assert len(flight) == 0


async def test_a_shared_load_without_readers_ends_and_the_next_reader_begins_a_new_one() -> None:
    loads = Loads()
    flight = SingleFlight[str, str]()
    readers = [asyncio.create_task(flight.share("k", lambda: loads.load("k"))) for _ in range(2)]
    await some_turns()
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    late = asyncio.create_task(flight.share("k", lambda: loads.load("k")))
    await some_turns()
    assert loads.ends[0].cancelled()
    loads.ends[1].set_result("bytes")
    assert await late == "bytes"
    assert len(flight) == 0
