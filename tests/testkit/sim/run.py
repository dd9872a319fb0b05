"""Runs one seed from beginning to end, and reports the outcome."""

import functools
import gc
from collections.abc import Callable
from dataclasses import dataclass

from penstock.contracts.levels import NEWEST_LEVEL
from tests.testkit.every_sender import EverySender
from tests.testkit.sim.checkers.final_checks import (
    are_replicas_level,
    check_group,
    check_records,
    check_replicas,
    is_group_done,
)
from tests.testkit.sim.clients.security_operator import SecurityOperator
from tests.testkit.sim.clients.token_operator import TokenOperator
from tests.testkit.sim.environment.host import SimClock
from tests.testkit.sim.environment.services import CLUSTER
from tests.testkit.sim.length import CLUSTERS_SUFFIX, Length, length_of, name_of, seed_and_length
from tests.testkit.sim.long_pause import LOOK_S, delete_all_topics, old_orphans, pause_with_flushers_last
from tests.testkit.sim.nemesis import FAULTS_COUNTED, Nemesis
from tests.testkit.sim.stage import Stage
from tests.testkit.sim.tenancy.deployment import Deployment
from tests.testkit.sim.tenancy.run import simulate
from tests.testkit.sim.world import World

START_TIMEOUT_S = 30.0
LONG_SHARE = 0.08  # of runs that last longer, for leases, snapshots and purges
LONG_FACTOR = 3
FINISH_INTERVAL_S = 0.05  # between requests after the last fault
LONG_PAUSE_SHARE = 0.2  # of runs with janitors
CALM_S = 1.0  # before a long pause
DELETE_ALL_SHARE = 0.3  # of runs with janitors
SETTLE_TIMEOUT_S = 90.0
OPERATORS_SHARE = 0.3  # of runs
OPERATORS = 2  # in each of these runs
BUS_FAULTS_COUNTED = ("messages lost", "messages repeated", "messages late", "answers repeated")
STORE_FAULTS_COUNTED = ("keys listed late", "puts that land after their error", "unsynced objects lost")
STOP_TIMEOUT_S = 30.0


@dataclass
class Outcome:
    """The outcome of a run."""

    name: str  # of the run: `run_named` repeats it
    failures: list[str]
    digest: str
    trace: list[str]
    virtual_s: float
    callbacks: int
    acknowledged: int
    entries: int
    happened: dict[str, int]  # counts of events that some runs do not have
    records: dict[str, int]  # in each topic at the end

    def report(self) -> str:
        """One line for people, and how to see more if it failed."""
        what = f"{self.virtual_s:.1f} s, {self.callbacks} callbacks, {self.acknowledged} batches acknowledged"
        line = f"seed {self.name}: {what}, {self.entries} journal entries, trace {self.digest}"
        return "\n".join((line, *self.failures, f"make sim SEED={self.name}")) if self.failures else line


def run_named(name: str, *, keep_trace: bool = False) -> Outcome:
    """Make one run by its name."""
    if name.endswith(CLUSTERS_SUFFIX):
        return run_clusters(int(name.removesuffix(CLUSTERS_SUFFIX)), keep_trace=keep_trace)
    seed, length = seed_and_length(name)
    return run_seed(seed, length=length, keep_trace=keep_trace)


def run_seed(seed: int, *, length: Length | None = None, keep_trace: bool = False, faults: bool = True) -> Outcome:
    """Make one run, by default with the seed's own length."""
    world = World(seed, length or length_of(seed), keep_trace=keep_trace)
    _simulate(world, lambda: _run(world, faults))
    acknowledged = sum(producer.acknowledged for producer in world.producers)
    entries = world.journal.last_sequence
    return _outcome(name_of(seed, world.length), world, acknowledged, entries, _counts(world), _records(world))


def run_clusters(seed: int, *, keep_trace: bool = False) -> Outcome:
    """Make one run of a deployment with several clusters."""
    deployment = Deployment(seed, keep_trace=keep_trace)
    _simulate(deployment, lambda: simulate(deployment))
    entries = sum(journal.last_sequence for journal in deployment.journals.values())
    name = f"{seed}{CLUSTERS_SUFFIX}"
    return _outcome(name, deployment, deployment.acknowledged, entries, deployment.counts(), {})


def _simulate(stage: Stage, run: Callable[[], None]) -> None:
    _exclude_imports_from_collection()
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        with stage.watching():
            run()
            stage.end()
    finally:
        if was_collecting:
            gc.enable()


def _outcome(
    name: str, stage: Stage, acknowledged: int, entries: int, happened: dict[str, int], records: dict[str, int]
) -> Outcome:
    return Outcome(
        name=name,
        failures=stage.failures,
        digest=stage.trace.digest,
        trace=list(stage.trace.lines),
        virtual_s=stage.now_s,
        callbacks=stage.timeline.callbacks,
        acknowledged=acknowledged,
        entries=entries,
        happened=happened,
        records=records,
    )


@functools.cache
def _exclude_imports_from_collection() -> None:
    """Freeze all present objects, so that the collector reads only those of runs."""
    gc.collect()
    gc.freeze()


def _records(world: World) -> dict[str, int]:
    topics = world.oracle.state.topics.values()
    return {topic.name: sum(partition.high_watermark for partition in topic.partitions) for topic in topics}


def _counts(world: World) -> dict[str, int]:
    return (
        {
            "runs compacted": sum(compactor.replaced for compactor in world.compactors),
            "log starts moved": world.deletion_checker.trimmed,
            "objects deleted": world.deletion_checker.deleted,
            "segments removed": world.deletion_checker.removed,
            "long pauses": world.long_pauses,
            "topics recreated": world.recreated_topic.incarnations,
            "topics expired": world.expiring_topic.incarnations,
            "comparisons with the model": world.judge.compared,
        }
        | {name: world.happened[name] for name in FAULTS_COUNTED}
        | {name: world.hub.happened[name] for name in BUS_FAULTS_COUNTED}
        | {name: world.store.happened[name] for name in STORE_FAULTS_COUNTED}
        | {f"answers judged, API {key}": world.answers.judged[key] for key in world.answers.apis}
        | world.transactions.counts()
        | world.shares.counts()
        | world.crowd.counts()
    )


def _run(world: World, faults: bool) -> None:
    for process in world.processes:
        process.start()
    world.spawn(world.make_topic())
    if not world.until("the topic", lambda: world.topic_exists, START_TIMEOUT_S):
        return
    length = world.length
    factor = LONG_FACTOR if world.dice.random() < LONG_SHARE and not length.is_short else 1
    world.begin_work(length.request_interval_s * factor)
    _begin_operators(world)
    nemesis = Nemesis(world)
    if faults:
        nemesis.begin()
    load_s = length.load_s * factor
    if world.janitors and faults and world.dice.random() < LONG_PAUSE_SHARE:
        world.run_for(load_s / 2)
        nemesis.heal()
        world.run_for(CALM_S)
        if not pause_with_flushers_last(world):
            return
        nemesis.begin()
        load_s /= 2
    world.run_for(load_s)
    nemesis.heal()
    _finish_soon(world)
    if not world.failures and _settle(world):
        _stop(world)


def _begin_operators(world: World) -> None:
    """Start administrators of users, access control lists and delegation tokens, in some runs."""
    if world.stream("operators").random() < OPERATORS_SHARE:
        for number in range(OPERATORS):
            world.spawn(SecurityOperator(world.client(f"operator-{number}")).run())
            world.spawn(_token_operator(world, f"token-operator-{number}").run())


def _token_operator(world: World, name: str) -> TokenOperator:
    clock = SimClock(world.timeline)
    sequencer = EverySender(world.hub.connect(name), CLUSTER, clock)
    return TokenOperator(name, world.oracle, sequencer, clock, world.stream(f"client/{name}"))


def _finish_soon(world: World) -> None:
    """Let clients end soon."""
    world.recreated_topic.finish()
    world.expiring_topic.finish()
    for producer in world.producers:
        producer.finish_soon(FINISH_INTERVAL_S)
    for writer in world.registers:
        writer.finish_soon()
    world.transactions.finish_soon()
    world.shares.finish_soon()
    world.crowd.finish_soon()
    if world.length.is_short:
        world.expiring_topic.skip_remaining()
        for producer in world.producers:
            producer.skip_remaining()
        world.transactions.skip_remaining()


def _settle(world: World) -> bool:
    """Wait until all work is done, and check it; whether all guarantees hold."""
    if not world.until("producers", lambda: all(each.is_done for each in world.producers), SETTLE_TIMEOUT_S):
        return False
    if not world.until("registers", lambda: all(each.is_done for each in world.registers), SETTLE_TIMEOUT_S):
        return False
    for writer in world.registers:
        writer.check()
    check_records(world)
    if not world.until("the recreated topic", lambda: world.recreated_topic.is_done, SETTLE_TIMEOUT_S):
        return False
    if not world.until("the expiring topic", lambda: world.expiring_topic.is_done, SETTLE_TIMEOUT_S):
        return False
    world.add_reader("auditor", reads_much=world.length.is_short)
    if not world.until("readers", lambda: all(each.is_at_end for each in world.readers), SETTLE_TIMEOUT_S):
        return False
    if world.transactions.is_wanted and not _settle_transactions(world):
        return False
    if not world.until("places for guests", lambda: world.crowd.is_done, SETTLE_TIMEOUT_S):
        return False
    if not world.until("the share group", lambda: world.shares.is_done, SETTLE_TIMEOUT_S):
        world.shares.explain()
        return False
    world.shares.checker.close()
    for member in world.members:
        member.may_leave = False
    if not world.until("the group", lambda: is_group_done(world), SETTLE_TIMEOUT_S):
        return False
    check_group(world)
    if world.neighbour is not None:
        if not world.until("the neighbour", lambda: world.neighbour.is_done, SETTLE_TIMEOUT_S):
            return False
        world.neighbour.check(world.oracle.state)
    if not world.until("the level", lambda: world.oracle.state.level == NEWEST_LEVEL, SETTLE_TIMEOUT_S):
        return False
    if not world.until("replicas", lambda: are_replicas_level(world), SETTLE_TIMEOUT_S):
        return False
    check_replicas(world)
    world.judge.compare()
    if not world.janitors or world.failures:
        return not world.failures
    if not world.until("the end of orphans", lambda: not old_orphans(world), SETTLE_TIMEOUT_S, LOOK_S):
        return False
    return world.dice.random() >= DELETE_ALL_SHARE or delete_all_topics(world)


def _settle_transactions(world: World) -> bool:
    if not world.until("transactions", lambda: world.transactions.is_done, SETTLE_TIMEOUT_S):
        return False
    world.transactions.add_auditors()
    if not world.until("readers of transactions", lambda: world.transactions.is_read, SETTLE_TIMEOUT_S):
        return False
    world.transactions.check()
    return not world.failures


def _stop(world: World) -> None:
    """End the clients, then stop the services."""
    world.record("stop")
    world.client_loop.kill()
    for role in ("janitor", "gateway", "flusher", "cacher", "sequencer"):
        for process in world.role(role):
            process.is_wanted = False
            process.stop()
        if not world.until(f"the end of each {role}", lambda role=role: _is_down(world, role), STOP_TIMEOUT_S):
            return


def _is_down(world: World, role: str) -> bool:
    return not any(process.is_up for process in world.role(role))
