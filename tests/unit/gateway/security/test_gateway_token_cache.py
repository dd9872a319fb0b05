"""Delegation tokens in a gateway's memory: it reads the changes only, and all of them after a loss of the journal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from penstock.contracts.commands import CreateToken, ExpireToken, RenewToken
from penstock.contracts.levels import TOKENS_LEVEL
from penstock.contracts.queries.delegation_tokens import TokensQuery
from penstock_gateway.security.delegation.token_cache import TokenCache
from penstock_gateway.security.delegation.token_keys import TokenKeys
from penstock_gateway.security.state_copy import CopyLimits
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import Limits, SecurityLimits
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import FakeSequencer

SOON = CopyLimits(retry_s=0.01)
KEYS = TokenKeys([b"a secret key"])
HOUR_MS = 3_600_000


class Cluster(FakeSequencer):
    """Sequencers at the level of tokens, with small pages."""

    def __init__(self) -> None:
        super().__init__()
        self.seen_level = TOKENS_LEVEL
        self.clock = ManualClock()
        self.machine = new_state(Limits(security=SecurityLimits(items_listed_max=2)))

    def create(self, *token_ids: str, key_id: str = KEYS.newest_id) -> None:
        now_ms = self.clock.now_ms()
        for each in token_ids:
            self.apply(CreateToken(now_ms, each, key_id, "alice", "alice", (), HOUR_MS, 2 * HOUR_MS))

    def revoke(self, token_id: str) -> None:
        self.apply(ExpireToken(self.clock.now_ms(), token_id, "alice", -1))

    def known(self) -> list[int]:
        """The entries up to which the queries so far knew all tokens."""
        return [each.known_sequence for _, each in self.queries if isinstance(each, TokensQuery)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def new_cache(cluster: Cluster, limits: CopyLimits = SOON) -> TokenCache:
    return TokenCache(cluster, KEYS, cluster.clock, limits)


@contextlib.asynccontextmanager
async def run(cluster: Cluster) -> AsyncIterator[TokenCache]:
    cache = new_cache(cluster)
    task = asyncio.create_task(cache.run())
    try:
        yield cache
    finally:
        task.cancel()
        await asyncio.wait([task])


def valid(cache: TokenCache) -> list[str]:
    return [each.token_id for each in cache.valid()]


async def test_all_pages_are_read_at_first_and_then_only_the_changes(cluster: Cluster) -> None:
    cluster.create("a", "b", "c", "d", "e")
    async with run(cluster) as cache:
        await until(lambda: cache.is_known)
        assert valid(cache) == ["a", "b", "c", "d", "e"]
        assert cluster.known() == [0, 2, 4]
        cluster.apply(RenewToken(cluster.clock.now_ms(), "b", "alice", 1))
        cluster.revoke("c")
        assert valid(cache) == ["a", "b", "c", "d", "e"], "it was not announced"
        cache.record(cluster.machine.sequence)
        await until(lambda: cache.sequence == cluster.machine.sequence)
        assert valid(cache) == ["a", "d", "e", "b"]
        assert cluster.known()[3:] == [5]
        cluster.clock.now_s += 1
        assert valid(cache) == ["a", "d", "e"]


async def test_a_token_is_found_by_its_password_as_long_as_its_key_is_here(cluster: Cluster) -> None:
    cluster.create("a")
    cluster.create("b", key_id="another key")
    cache = new_cache(cluster)
    assert await cache.refresh()
    password = KEYS.hmac("a", KEYS.newest_id)
    assert password is not None
    wrong = (b"wrong", b"", password[:-1], password + b"\0", password.swapcase())
    assert (cache.id_of(password), *map(cache.id_of, wrong)) == ("a", *[""] * len(wrong))
    assert valid(cache) == ["a"]
    cluster.revoke("a")
    assert await cache.refresh()
    assert cache.id_of(password) == "a", "events name a revoked token, too"
    assert valid(cache) == []


async def test_tokens_that_ended_long_ago_are_removed_here_too(cluster: Cluster) -> None:
    cluster.create("a")
    cache = new_cache(cluster)
    assert await cache.refresh()
    cluster.clock.now_s += HOUR_MS // 1000 + 601
    cluster.create("b")
    assert await cache.refresh()
    assert cache.find("a") is None
    assert valid(cache) == ["b"]


async def test_after_a_loss_of_the_journal_the_tokens_are_those_of_the_new_one(cluster: Cluster) -> None:
    cluster.create("a", "b", "c")
    cache = new_cache(cluster)
    assert await cache.refresh()
    cluster.machine = new_state(Limits(security=SecurityLimits(items_listed_max=2)))
    cluster.create("b")
    assert await cache.refresh()
    assert valid(cache) == ["b"]
    assert cache.find("a") is None


async def test_in_an_outage_it_keeps_its_tokens(cluster: Cluster) -> None:
    cluster.create("a")
    cache = new_cache(cluster)
    assert await cache.refresh()
    cluster.is_down = True
    assert not await cache.refresh()
    assert valid(cache) == ["a"]
    assert cache.is_known


async def test_a_cluster_below_the_level_has_no_tokens(cluster: Cluster) -> None:
    cluster.is_down = True
    cluster.seen_level = None
    cache = new_cache(cluster)
    assert not await cache.refresh()
    assert not cache.is_known
    cluster.seen_level = TOKENS_LEVEL - 1
    assert await cache.refresh()
    assert cache.is_known


async def test_a_refresh_has_an_end(cluster: Cluster) -> None:
    cluster.create("a", "b", "c", "d", "e")
    cache = new_cache(cluster, CopyLimits(pages_max=2))
    assert not await cache.refresh()
    assert not cache.is_known


def test_without_keys_there_is_no_password() -> None:
    assert not TokenKeys([])
    assert TokenKeys([]).hmac("a", "") is None
