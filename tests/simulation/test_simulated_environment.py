"""The simulated environment of services, and the faults that a test gives it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.contracts.errors import Conflict, Unavailable, Undelivered
from penstock.objectstore.errors import Throttled
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.journal import JournalEntry
from tests.testkit.sim.environment.bus import BusFaults
from tests.testkit.sim.environment.host import BusReach
from tests.testkit.sim.environment.journal import JournalFaults, SimJournal
from tests.testkit.sim.environment.loop import SimLoop, Spinning
from tests.testkit.sim.environment.shared import SharedEnvironment
from tests.testkit.sim.environment.store import SimStore, StoreFaults

pytestmark = pytest.mark.simulation


class Stage:
    """A `SharedEnvironment`, with the processes that a test makes."""

    def __init__(self) -> None:
        self.environment = SharedEnvironment(1)

    def loop(self, name: str) -> SimLoop:
        return SimLoop(self.environment.timeline, name, lambda context: self.environment.fail(str(context)))

    def run(self, loop: SimLoop, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run `work` in the loop of a process; return its result, or raise its error."""

        async def act() -> Any:
            return await work()

        task = loop.create_task(act())
        assert self.environment.timeline.run(task.done, self.environment.now_s + 100), "the work does not end"
        return task.result()

    def pass_time(self, duration_s: float) -> None:
        end_s = self.environment.now_s + duration_s
        self.environment.infrastructure.call_at(end_s, lambda: None)
        self.environment.timeline.run(lambda: self.environment.now_s >= end_s, end_s)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def echo(message: Inbound) -> None:
    await message.respond(message.data)


def test_a_paused_process_does_nothing_and_then_all_work_at_once(stage: Stage) -> None:
    loop, seen = stage.loop("p"), list[float]()

    async def count() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(stage.environment.now_s)

    loop.create_task(count())
    stage.pass_time(2.5)
    loop.pause()
    stage.pass_time(10)
    assert seen == [1, 2]
    loop.resume(timers_first=True)
    stage.pass_time(1.2)
    assert seen == [1, 2, 12.5, 13.5]


def test_a_killed_process_ends_at_once_and_leaves_no_task(stage: Stage) -> None:
    loop, steps = stage.loop("p"), list[str]()

    async def work() -> None:
        try:
            steps.append("begun")
            await asyncio.sleep(1)
            steps.append("never")
        finally:
            steps.append("ended")

    loop.create_task(work())
    stage.pass_time(0.5)
    assert loop.kill() == []
    stage.pass_time(5)
    assert steps == ["begun", "ended"]


def test_a_process_can_be_killed_before_each_of_its_steps(stage: Stage) -> None:
    loop, steps = stage.loop("p"), list[int]()

    async def work() -> None:
        for step in range(10):
            steps.append(step)
            await asyncio.sleep(0)

    loop.create_task(work())
    loop.stop_after(3, lambda: steps.extend(-1 for _ in loop.kill()))
    stage.pass_time(1)
    assert steps == [0, 1, 2]


def test_a_task_that_does_not_end_is_reported(stage: Stage) -> None:
    loop = stage.loop("p")

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    task = loop.create_task(stubborn())
    stage.pass_time(0.5)
    assert loop.kill() == [task]
    task.get_coro().close()  # type: ignore[union-attr]


def test_a_failure_that_the_kill_keeps_from_its_reader_is_no_defect(stage: Stage) -> None:
    loop, leaked = stage.loop("p"), list[asyncio.Task[None]]()

    async def fail() -> None:
        raise Unavailable("nothing answers")

    async def read() -> None:
        failing = asyncio.create_task(fail())
        await asyncio.wait({failing})
        failing.result()

    loop.create_task(read())
    loop.stop_after(2, lambda: leaked.extend(loop.kill()))
    stage.pass_time(1)
    assert not leaked
    assert stage.environment.failures == []


def test_a_failure_that_has_no_reader_is_a_defect_of_the_process_that_is_killed(stage: Stage) -> None:
    loop = stage.loop("p")

    async def fail() -> None:
        raise Unavailable("nothing answers")

    loop.create_task(fail())
    stage.pass_time(1)
    loop.kill()
    (failure,) = stage.environment.failures
    assert "never retrieved" in failure


def test_a_task_that_is_busy_for_ever_is_detected(stage: Stage) -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop = stage.loop("p")
    loop.create_task(spin())
    with pytest.raises(Spinning, match="p"):
        stage.pass_time(1)
    loop.kill()


def test_the_outcome_of_a_request_is_unknown_after_a_cut(stage: Stage) -> None:
    asker, answerer = stage.environment.hub.connect("a"), stage.environment.hub.connect("b")
    stage.run(stage.loop("b"), lambda: answerer.subscribe("s", echo))
    loop = stage.loop("a")
    assert stage.run(loop, lambda: asker.request("s", b"one", 1)) == b"one"
    stage.environment.infrastructure.call_later(0.00001, stage.environment.hub.cut, "a")
    with pytest.raises(Unavailable, match="broke"):
        stage.run(loop, lambda: asker.request("s", b"two", 1))


def test_a_silent_connection_looks_healthy_and_carries_nothing(stage: Stage) -> None:
    asker, answerer = stage.environment.hub.connect("a"), stage.environment.hub.connect("b")
    stage.run(stage.loop("b"), lambda: answerer.subscribe("s", echo))
    stage.environment.hub.silence("a")
    assert asker.is_connected
    with pytest.raises(Unavailable, match="no answer"):
        stage.run(stage.loop("a"), lambda: asker.request("s", b"one", 1))


def test_severed_servers_exchange_nothing_and_notice_it_later(stage: Stage) -> None:
    asker, answerer = stage.environment.hub.connect("a", 0), stage.environment.hub.connect("b", 1)
    stage.run(stage.loop("b"), lambda: answerer.subscribe("s", echo))
    stage.environment.hub.severed.pairs.add((0, 1))
    with pytest.raises(Unavailable, match="no answer"):
        stage.run(stage.loop("a"), lambda: asker.request("s", b"one", 1))
    stage.environment.hub.severed.is_noticed = True
    with pytest.raises(Undelivered):
        stage.run(stage.loop("a"), lambda: asker.request("s", b"one", 1))


def test_a_repeated_append_is_stored_once_although_its_acknowledgement_is_lost(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    journal = stage.run(loop, lambda: _journal(stage))
    environment.journal.faults = JournalFaults(unacknowledged_share=1.0)
    for _ in range(2):
        with pytest.raises(Unavailable):
            stage.run(loop, lambda: journal.append("one", b"data"))
    environment.journal.faults = JournalFaults()
    assert stage.run(loop, lambda: journal.append("one", b"data")) == 1
    assert environment.journal.last_sequence == 1


def test_a_full_journal_takes_no_entries_but_can_be_read(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    journal = stage.run(loop, lambda: _journal(stage))
    stage.run(loop, lambda: journal.append("one", b"data"))
    environment.journal.is_full = True
    with pytest.raises(Unavailable, match="insufficient"):
        stage.run(loop, lambda: journal.append("two", b"more"))
    assert stage.run(loop, lambda: anext(journal.tail(0))) == [JournalEntry(1, b"data")]
    environment.journal.is_full = False
    assert stage.run(loop, lambda: journal.append("two", b"more")) == 2


def test_a_late_append_is_stored_after_the_end_of_its_process(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    journal = stage.run(loop, lambda: _journal(stage))
    environment.journal.faults = JournalFaults(late_share=1.0, late_s_max=2.0)
    loop.create_task(journal.append("one", b"data"))
    stage.pass_time(0.5)
    environment.hub.kill("journal")
    loop.kill()
    stage.pass_time(5)
    assert environment.journal.last_sequence == 1


def test_a_put_may_fail_before_or_after_its_effect_or_never_answer(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    store = SimStore(environment.store, "p")
    environment.store.faults = StoreFaults(failed_share=1.0)
    with pytest.raises(Unavailable):
        stage.run(loop, lambda: store.put("failed", [b"data"]))
    environment.store.faults = StoreFaults(unacknowledged_share=1.0)
    with pytest.raises(Unavailable):
        stage.run(loop, lambda: store.put("unacknowledged", [b"data"]))
    environment.store.faults = StoreFaults(throttled_share=1.0)
    with pytest.raises(Throttled):
        stage.run(loop, lambda: store.put("throttled", [b"data"]))
    environment.store.faults = StoreFaults(hung_share=1.0)
    hanging = [loop.create_task(store.put(f"hung-{number}", [b"data"])) for number in range(20)]
    stage.pass_time(environment.store.faults.hung_s_max + 5)
    assert not any(task.done() for task in hanging)
    done = environment.store.keys("hung")
    assert 0 < len(done) < len(hanging)
    assert environment.store.keys("") == sorted(["unacknowledged", *done])
    loop.kill()


def test_a_power_loss_takes_appends_on_their_way_and_no_stored_ones(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    journal = stage.run(loop, lambda: _journal(stage))
    stage.run(loop, lambda: journal.append("one", b"data"))
    environment.journal.faults = JournalFaults(late_share=1.0, late_s_max=2.0)
    loop.create_task(journal.append("two", b"more"))
    stage.pass_time(0.5)
    environment.journal.lose_power()
    stage.pass_time(5)
    loop.kill()
    assert environment.journal.last_sequence == 1


def test_a_power_loss_may_take_an_object_that_is_not_confirmed_and_no_other(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    store = SimStore(environment.store, "p")
    stage.run(loop, lambda: store.put("confirmed", [b"data"]))
    environment.store.faults = StoreFaults(unacknowledged_share=1.0)
    for number in range(20):
        with pytest.raises(Unavailable):
            stage.run(loop, lambda number=number: store.put(f"unconfirmed-{number}", [b"data"]))
    environment.store.lose_power()
    left = environment.store.keys("")
    assert "confirmed" in left and 1 < len(left) < 21
    environment.store.faults = StoreFaults()
    for key in left[1:]:
        with pytest.raises(Conflict):
            stage.run(loop, lambda key=key: store.put(key, [b"data"]))
    environment.store.lose_power()
    assert environment.store.keys("") == left


def test_a_late_list_shows_new_keys_after_a_while_and_a_single_key_at_once(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    store = SimStore(environment.store, "p")

    def listed(prefix: str) -> list[str]:
        return [each.key for each in stage.run(loop, lambda: store.list(prefix))]

    stage.run(loop, lambda: store.put("a/old", [b"data"]))
    stage.pass_time(5)
    environment.store.faults = StoreFaults(listed_late_s=4.0)
    stage.run(loop, lambda: store.put("a/new", [b"data"]))
    assert listed("a/") == ["a/old"]
    assert listed("a/new") == ["a/new"]
    stage.pass_time(4)
    assert listed("a/") == ["a/new", "a/old"]


def test_a_put_may_land_long_after_its_error(stage: Stage) -> None:
    environment, loop = stage.environment, stage.loop("p")
    environment.store.faults = StoreFaults(later_share=1.0)
    with pytest.raises(Unavailable):
        stage.run(loop, lambda: SimStore(environment.store, "p").put("later", [b"data"]))
    before = environment.store.keys("")
    stage.pass_time(environment.store.faults.later_s_max)
    assert (before, environment.store.keys("")) == ([], ["later"])


@pytest.mark.parametrize(("up", "down", "arrives"), [(True, False, 0), (False, True, 1)])
def test_a_connection_that_is_mute_or_deaf_carries_one_direction(
    stage: Stage, up: bool, down: bool, arrives: int
) -> None:
    asker, answerer = stage.environment.hub.connect("a"), stage.environment.hub.connect("b")
    seen = list[bytes]()

    async def note(message: Inbound) -> None:
        seen.append(message.data)
        await message.respond(message.data)

    stage.run(stage.loop("b"), lambda: answerer.subscribe("s", note))
    stage.environment.hub.silence("a", up=up, down=down)
    with pytest.raises(Unavailable, match="no answer"):
        stage.run(stage.loop("a"), lambda: asker.request("s", b"one", 1))
    assert len(seen) == arrives


def test_a_late_message_delays_all_later_ones(stage: Stage) -> None:
    asker, answerer = stage.environment.hub.connect("a"), stage.environment.hub.connect("b")
    seen = list[bytes]()

    async def note(message: Inbound) -> None:
        seen.append(message.data)

    stage.run(stage.loop("b"), lambda: answerer.subscribe("s", note))
    stage.environment.hub.faults = BusFaults(late_share=1.0, late_s_max=2.0)
    stage.run(stage.loop("a"), lambda: asker.publish("s", b"one"))
    stage.pass_time(0.01)
    stage.environment.hub.faults = BusFaults()
    stage.run(stage.loop("a"), lambda: asker.publish("s", b"two"))
    assert seen == []
    stage.pass_time(2.1)
    assert seen == [b"one", b"two"]


async def _journal(stage: Stage) -> SimJournal:
    stage.environment.hub.connect("journal")
    return SimJournal(stage.environment.journal, "journal", BusReach(stage.environment.hub, "journal", lambda: 0))
