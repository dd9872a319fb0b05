"""The checks after a run: the guarantees of the design, compared with all results of clients."""

from collections import Counter

from penstock_sequencer.app import SequencerApp
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.service import Sequencer
from tests.testkit.sim.clients.producer import Producer
from tests.testkit.sim.environment.process import Process
from tests.testkit.sim.environment.services import HostingSequencers
from tests.testkit.sim.world import TOPIC, World


def check_records(world: World) -> None:
    """No acknowledged batch is lost, no idempotent batch is duplicated, requests are complete, no batch is unknown."""
    world.oracle.check_objects()
    stored = {partition: Counter(world.oracle.content(TOPIC, partition)) for partition in range(world.partitions)}
    sent = 0
    for producer in world.producers:
        sent += sum(_check_producer(world, producer, stored))
    total = sum(count for counts in stored.values() for count in counts.values())
    if sent != total:
        world.fail(f"{total} batches are stored, {sent} of them were sent")


def _check_producer(world: World, producer: Producer, stored: dict[int, Counter[bytes]]) -> list[int]:
    """Check the requests of a producer; the number of stored batches of each."""
    found = []
    gaps: set[int] = set()  # partitions without a batch of a dead producer, where its later batches are rejected
    for sending in producer.ledger:
        counts = {partition: stored[partition][batch] for partition, batch in sending.batches.items()}
        found.append(sum(counts.values()))
        what = f"request {sending.number} of {producer.name}, stored {counts}"
        if any(not counts[partition] for partition in sending.offsets):
            world.fail(f"{what}, was acknowledged")
        if sending.is_abandoned and max(counts.values()) > 1:
            world.fail(f"{what}, was abandoned")
        elif producer.is_idempotent and not sending.is_abandoned and set(counts.values()) != {1}:
            world.fail(f"{what}, must be stored once")
        if not producer.retries and max(counts.values()) > 1:
            world.fail(f"{what}, was sent once")
        missing = {partition for partition, count in counts.items() if not count}
        if not sending.was_split and len(set(counts.values())) > 1 and not missing <= gaps:
            world.fail(f"{what}, is incomplete")
        gaps = gaps | missing if sending.is_abandoned else set()
    return found


def check_replicas(world: World) -> None:
    """All replicas have the state that follows from the journal."""
    truth = encode_state(world.oracle.state)
    for process in world.role("sequencer"):
        state = state_of(process)
        if state.sequence != world.oracle.state.sequence:
            world.fail(f"{process.name} has applied {state.sequence} of {world.oracle.state.sequence}")
        elif encode_state(state) != truth:
            world.fail(f"{process.name} has another state at {state.sequence}")


def check_group(world: World) -> None:
    """The group has read everything without a gap."""
    for partition in range(world.partitions):
        end, done = world.oracle.log(TOPIC, partition).end, world.group.done[partition]
        if done != end:
            world.fail(f"the group read {TOPIC}-{partition} up to {done} without a gap, its end is {end}")


def are_replicas_level(world: World) -> bool:
    """Whether all replicas have applied the whole journal."""
    processes = world.role("sequencer")
    return all(is_serving(each) and state_of(each).sequence == world.journal.last_sequence for each in processes)


def is_serving(process: Process) -> bool:
    """Whether a sequencer has a state."""
    return process.is_up and _sequencer(process) is not None


def is_group_done(world: World) -> bool:
    """Whether every member has its partitions, and the group has committed all offsets."""
    members = [each for each in world.members if each.assigned is not None]
    shared = sorted(partition for each in members for partition in each.assigned or ())
    if len(members) != len(world.members) or shared != list(range(world.partitions)):
        return False
    return all(
        world.group.committed[partition] == world.oracle.log(TOPIC, partition).end
        for partition in range(world.partitions)
    )


def state_of(process: Process) -> State:
    """The state of a sequencer."""
    sequencer = _sequencer(process)
    assert sequencer is not None, f"{process.name} has no state yet"
    return sequencer.replica.state


def _sequencer(process: Process) -> Sequencer | None:
    assert isinstance(process.app, SequencerApp | HostingSequencers | None), f"{process.name} is no sequencer"
    return None if process.app is None else process.app.sequencer
