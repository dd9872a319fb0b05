"""Users and access control lists of a gateway: queried at its start and after each change, and kept in an outage."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import (
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    ScramVerifier,
)
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.queries.security import SecurityQuery
from penstock_gateway.security.security_cache import SecurityCache
from penstock_gateway.security.state_copy import CopyLimits
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import FakeSequencer

SHA_256, SHA_512 = ScramMechanism
SOON = CopyLimits(retry_s=0.01)


def verifier(mechanism: ScramMechanism = SHA_256) -> ScramVerifier:
    key = b"k" * (32 if mechanism == SHA_256 else 64)
    return ScramVerifier(mechanism, 4_096, b"salt", key, key)


def binding(name: str) -> AclBinding:
    allowed = (AclOperation.READ, AclPermission.ALLOW)
    return AclBinding(ResourceType.TOPIC, name, PatternType.LITERAL, "User:alice", "*", *allowed)


class Cluster(FakeSequencer):
    """Sequencers at the level of users, with small pages."""

    def __init__(self) -> None:
        super().__init__()
        self.seen_level = SECURITY_LEVEL
        self.machine = new_state(Limits(answers=AnswerLimits(names_listed_max=3)))

    def add_user(self, name: str, mechanism: ScramMechanism = SHA_256) -> None:
        self.apply(AlterScramCredentials(1, [ScramUpsertion(name, verifier(mechanism))], []))

    def add_binding(self, name: str) -> None:
        self.apply(CreateAcls(1, [binding(name)]))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@contextlib.asynccontextmanager
async def run(cluster: Cluster) -> AsyncIterator[SecurityCache]:
    cache = SecurityCache(cluster, SOON)
    task = asyncio.create_task(cache.run())
    try:
        yield cache
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_gateway_of_a_cluster_without_users_knows_that_there_are_none(cluster: Cluster) -> None:
    async with run(cluster) as cache:
        await until(lambda: cache.is_known)
        assert (cache.users(), list(cache.bindings), cache.sequence) == ([], [], 0)


async def test_nothing_is_known_until_a_sequencer_has_answered(cluster: Cluster) -> None:
    cluster.is_down = True
    cluster.add_user("alice")
    async with run(cluster) as cache:
        await until(lambda: len(cluster.queries) > 2)
        assert not cache.is_known
        assert cache.verifier("alice", SHA_256) is None
        cluster.is_down = False
        await until(lambda: cache.is_known)
        assert cache.verifier("alice", SHA_256) == verifier()


async def test_a_cluster_below_the_level_has_no_users_even_if_its_sequencers_do_not_know_the_query() -> None:
    cluster = Cluster()
    cluster.is_down = True
    cluster.seen_level = None
    cache = SecurityCache(cluster, SOON)
    assert not await cache.refresh()
    assert not cache.is_known
    cluster.seen_level = SECURITY_LEVEL - 1
    assert await cache.refresh()
    assert cache.is_known


async def test_all_pages_are_read_and_a_change_is_read_after_its_announcement(cluster: Cluster) -> None:
    async with run(cluster) as cache:
        for name in ("dora", "bob", "alice", "carol"):
            cluster.add_user(name)
            cluster.add_binding(name)
        cluster.add_user("bob", SHA_512)
        cache.record(cluster.machine.sequence)
        await until(lambda: cache.sequence == cluster.machine.security_altered_sequence)
        assert [each.name for each in cache.users()] == ["alice", "bob", "carol", "dora"]
        assert cache.users()[1].verifiers == [verifier(), verifier(SHA_512)]
        assert cache.verifier("bob", SHA_512) == verifier(SHA_512)
        assert cache.verifier("alice", SHA_512) is None
        assert cache.verifier("eve", SHA_256) is None
        assert cache.bindings == tuple(cluster.machine.bindings)
        cluster.apply(DeleteAcls(1, [AclFilter()]))
        cluster.apply(AlterScramCredentials(1, [], [ScramDeletion("alice", SHA_256)]))
        assert cache.verifier("alice", SHA_256) is not None, "it was not announced"
        cache.record(cluster.machine.sequence)
        await until(lambda: cache.verifier("alice", SHA_256) is None)
        assert cache.bindings == ()


async def test_a_change_between_two_pages_begins_them_anew(cluster: Cluster) -> None:
    for name in ("a1", "a2", "a3", "a4", "a5"):
        cluster.add_user(name)
    answer = cluster.views["security"]
    changes = iter(["a0"])

    def answer_and_change(query: SecurityQuery) -> object:
        view = answer(query)
        for name in changes:
            cluster.add_user(name)
        return view

    cluster.views["security"] = answer_and_change
    cache = SecurityCache(cluster)
    assert await cache.refresh()
    assert [each.name for each in cache.users()] == ["a0", "a1", "a2", "a3", "a4", "a5"]
    assert cache.sequence == cluster.machine.sequence


async def test_a_cluster_that_changes_without_end_does_not_keep_the_cache_busy(cluster: Cluster) -> None:
    for name in ("a1", "a2", "a3", "a4", "a5"):
        cluster.add_user(name)
    answer = cluster.views["security"]

    def answer_and_change(query: SecurityQuery) -> object:
        view = answer(query)
        cluster.add_binding(f"t{cluster.machine.sequence}")
        return view

    cluster.views["security"] = answer_and_change
    cache = SecurityCache(cluster, CopyLimits(pages_max=7))
    assert not await cache.refresh()
    assert len(cluster.queries) == 7
    assert not cache.is_known


async def test_the_cache_is_kept_while_no_sequencer_answers_and_an_unchanged_state_is_not_sent_again(
    cluster: Cluster,
) -> None:
    cluster.add_user("alice")
    cluster.add_binding("t")
    cache = SecurityCache(cluster)
    assert await cache.refresh()
    cluster.is_down = True
    assert not await cache.refresh()
    assert cache.is_known
    assert cache.verifier("alice", SHA_256) == verifier()
    assert list(cache.bindings) == [binding("t")]
    cluster.is_down = False
    asked = len(cluster.queries)
    assert await cache.refresh()
    (known,) = cluster.queries[asked:]
    assert cluster.views["security"](known[1]).users == []


async def test_simultaneous_refreshes_never_replace_the_newer_state(cluster: Cluster) -> None:
    cluster.add_user("alice")
    cache = SecurityCache(cluster)
    first = asyncio.create_task(cache.refresh())
    await until(lambda: len(cluster.queries) == 1)
    cluster.add_user("bob")
    assert await cache.refresh()
    assert [each.name for each in cache.users()] == ["alice", "bob"]
    await first
    assert [each.name for each in cache.users()] == ["alice", "bob"]


def test_every_page_fits_a_message_at_the_limits_of_the_release() -> None:
    """The longest names in four bytes each: a page may exceed its limit by one item."""
    cluster = FakeSequencer()
    long = "\N{GRINNING FACE}" * 255
    wide = [msgspec.structs.replace(binding(f"{n:04}" + long[4:]), host=long) for n in range(1_500)]
    cluster.apply(CreateAcls(1, wide))
    view = cluster.views["security"](SecurityQuery(0))
    assert not view.is_last
    assert len(msgspec.msgpack.encode(view)) < 3 * 1024 * 1024
