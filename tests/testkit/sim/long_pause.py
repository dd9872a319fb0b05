"""Long pauses: all processes and clients are paused while more than an hour passes.

During a long pause, uncommitted segments become so old that they are orphans. Afterwards all processes continue their
work. Flushers continue only after janitors have deleted the segments that these flushers had stored.
"""

import contextlib

from penstock.contracts.ids import segment_born_ms
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest
from penstock.segment.keys import parse_segment_key, segments_prefix
from penstock_sequencer.core.state.segments import NO_SLOT
from tests.testkit.sim.checkers.deletion_checker import ORPHAN_AGE_MS, belongs_to_journal
from tests.testkit.sim.clients.kafka import DELETE_TOPICS, Disconnected
from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.services import CLUSTER
from tests.testkit.sim.environment.wire import START_MS
from tests.testkit.sim.world import World

LONG_PAUSE_S = 4_500.0  # an orphan is an hour old, by a clock that may be ten minutes slow
JOURNAL_STALL_S = 0.6  # before the pause, so that uploaded segments are not committed
PAUSE_AGAIN_AFTER_S = 5.0  # processes that were about to start are running then, and are paused, too
SWEEP_TIMEOUT_S = 90.0
LOOK_S = 0.1  # between two checks of the bucket


def pause_with_flushers_last(world: World) -> bool:
    """Make a long pause after which flushers continue last; whether janitors deleted all orphans in time."""
    _pause_all(world)
    flushers = world.role("flusher")
    for process in world.processes:
        if process not in flushers:
            process.resume()
    world.client_loop.resume(timers_first=True)
    uncommitted = _uncommitted(world, START_MS + int(world.now_s * 1000))
    world.record(f"uncommitted {uncommitted}")
    is_swept = world.until(
        "the sweep after the pause", lambda: not any(map(world.store.size_of, uncommitted)), SWEEP_TIMEOUT_S, LOOK_S
    )
    for process in flushers:
        process.resume()
    return is_swept


def delete_all_topics(world: World) -> bool:
    """Delete all topics; whether only objects of the journal are left after a long pause."""
    world.record("delete all topics")
    world.client_loop.kill()
    admin = SimLoop(world.timeline, "admin", lambda context: world.fail(f"the admin: {context}"))
    admin.create_task(_delete_topics(world))
    has_deleted = world.until("the end of all topics", lambda: not world.oracle.state.topics, SWEEP_TIMEOUT_S)
    admin.kill()
    if not has_deleted:
        return False
    if world.happened[
        "sequencer clocks that leap"
    ]:  # segments may be dead from a time on that is days ahead (ADR 0011)
        return True
    _pause_all(world)
    for process in world.processes:
        process.resume()
    is_empty = world.until("an empty bucket", lambda: not _leftovers(world), SWEEP_TIMEOUT_S, LOOK_S)
    if not is_empty:
        world.fail(f"left over: {_leftovers(world)}")
    return is_empty


def old_orphans(world: World) -> list[str]:
    """The stored segments that the journal does not know, and that are too old for a commit."""
    return _uncommitted(world, min(world.oracle.state.clock_ms, START_MS + int(world.now_s * 1000)))


def _uncommitted(world: World, clock_ms: int) -> list[str]:
    """The stored segments that the journal does not know, and that are orphans at that time."""
    return [key for key, born_ms in _unknown(world) if born_ms < clock_ms - ORPHAN_AGE_MS]


def _unknown(world: World) -> list[tuple[str, int]]:
    """The stored segments that the journal does not know, each with the time in its name."""
    state = world.oracle.state
    found = []
    for key in world.store.keys(segments_prefix("", CLUSTER)):
        _, segment_id = parse_segment_key(key)
        if state.segments.find(segment_id) == NO_SLOT and segment_id not in state.commits:
            found.append((key, segment_born_ms(segment_id)))
    return found


def _pause_all(world: World) -> None:
    world.record("long pause begins")
    world.long_pauses += 1
    world.journal.set_available(False)
    world.run_for(JOURNAL_STALL_S)
    for _ in range(2):
        world.client_loop.pause()
        for process in world.processes:
            process.pause()
        world.run_for(PAUSE_AGAIN_AFTER_S)
    world.run_for(LONG_PAUSE_S)
    world.journal.set_available(True)
    world.record("long pause ends")


async def _delete_topics(world: World) -> None:
    client = world.client("deleter")
    while world.oracle.state.topics:
        connection = await client.connect()
        with contextlib.suppress(Disconnected):
            await connection.ask(DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=list(world.oracle.state.topics)))
        connection.close()
        await client.back_off()


def _leftovers(world: World) -> list[str]:
    """The objects that are no snapshot, no archive and no marker, and the unfinished uploads.

    A flusher whose clock was days ahead names segments after days to come. Such an orphan stays for days (ADR 0011).
    """
    now_ms = START_MS + int(world.now_s * 1000)
    to_come = {key for key, born_ms in _unknown(world) if born_ms > now_ms}
    kept = [key for key in world.store.keys("") if not belongs_to_journal(key) and key not in to_come]
    return kept + world.store.unfinished()
