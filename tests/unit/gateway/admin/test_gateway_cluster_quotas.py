"""Quotas of a whole virtual cluster: they come with the presences of sequencers, and limit all its clients together."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from penstock.contracts.configs.quotas import CLUSTER_ENTITY, PRODUCE_RATE
from penstock.contracts.messages import ClusterUse, Presence, QuotaUse
from penstock.kafkawire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.admin.test_gateway_quotas import FETCH, produced, set_quota
from tests.unit.gateway.gateway_fakes import World, gateway_presence, new_client, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = new_world()
    world.sequencer.add_topic("t", 4)
    await world.add_flusher("f1")
    async with with_flushes(world):
        yield world


def announce(world: World, sequence: int = 1, sequencer: str = "s1", **use: int) -> None:
    """A sequencer announces these quotas, and this use."""
    presence = Presence("sequencer", "z1", sequencer, "1", journal_sequence=sequence, cluster_use=ClusterUse(**use))
    world.directory.put(presence)
    world.gateway.quotas.reported()  # as for the gateway's own presence, each second


def error_of(response: Any) -> tuple[int, str | None]:
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.error_message


async def test_all_producers_of_a_cluster_share_its_quota(world: World) -> None:
    announce(world, produced_bytes_per_s_max=500)
    assert error_of(await produced(world, new_client("a"), records=60)) == (0, None)
    other = new_client("b")
    assert (await produced(world, other)).throttle_time_ms > 0
    assert other.muted_until_s > world.clock.monotonic_s()
    assert world.metric("penstock_gateway_throttled_total", quota="cluster_producer_byte_rate") == 2


async def test_the_stricter_of_a_clients_and_the_clusters_quota_counts(world: World) -> None:
    await set_quota(world, "producer_byte_rate", "1000000", user=None)
    announce(world, produced_bytes_per_s_max=100)
    assert (await produced(world, new_client(), records=100)).throttle_time_ms > 5000
    assert world.metric("penstock_gateway_throttled_total", quota="cluster_producer_byte_rate") == 1
    announce(world, produced_bytes_per_s_max=1_000_000)
    await set_quota(world, "producer_byte_rate", "100", user=None)
    assert (await produced(world, new_client(), records=100)).throttle_time_ms > 5000
    assert world.metric("penstock_gateway_throttled_total", quota="producer_byte_rate") == 1


async def test_all_consumers_of_a_cluster_share_its_quota(world: World) -> None:
    seen: list[int] = []

    async def answer(gateway: Any, client: Any, version: int, request: FetchRequest) -> FetchResponse:
        seen.append(request.max_bytes)
        partition = msgspec.structs.replace(PartitionData(), records=[b"x" * 8000])
        return FetchResponse(responses=[msgspec.structs.replace(FetchableTopicResponse("t"), partitions=[partition])])

    world.handlers[FETCH] = answer
    announce(world, consumed_bytes_per_s_max=4000)
    first = await ask(world, FETCH, 12, FetchRequest(max_wait_ms=0), new_client("a"))
    second = await ask(world, FETCH, 12, FetchRequest(max_wait_ms=0), new_client("b"))
    assert (seen, first.throttle_time_ms, second.throttle_time_ms) == ([4000], 1000, 1000)
    assert second.responses == []


async def test_the_quota_of_a_cluster_is_divided_among_its_gateways(world: World) -> None:
    announce(world, produced_bytes_per_s_max=1000)
    await produced(world, new_client())
    use = QuotaUse(PRODUCE_RATE, CLUSTER_ENTITY, 300.0)
    world.directory.put(msgspec.structs.replace(gateway_presence("g2"), quota_use=(use,)))
    world.clock.now_s += 1
    ((key, who),) = [(each.key, each.who) for each in world.gateway.quotas.reported()]
    assert (key, who) == (PRODUCE_RATE, CLUSTER_ENTITY)
    assert [meter.rate for meter in world.gateway.quotas.meters(PRODUCE_RATE, "", "c").values()] == [700.0]


async def test_a_full_cluster_rejects_records_until_some_are_deleted(world: World) -> None:
    announce(world, 5, stored_bytes_max=1000, stored_bytes=999)
    assert world.gateway.quotas.is_empty, "nothing is measured for this quota"
    assert error_of(await produced(world, new_client())) == (0, None)
    announce(world, 6, stored_bytes_max=1000, stored_bytes=1000)
    code, message = error_of(await produced(world, new_client()))
    assert code == ErrorCode.POLICY_VIOLATION
    assert message is not None and "The quota of this cluster is 1000 stored bytes, and it has 1000." in message
    assert world.metric("penstock_gateway_batches_refused_total", error="POLICY_VIOLATION") == 1
    announce(world, 7, stored_bytes_max=1000, stored_bytes=10)
    assert error_of(await produced(world, new_client())) == (0, None)


async def test_the_replica_that_applied_most_is_followed_and_its_last_word_stays(world: World) -> None:
    announce(world, 9, "s2", stored_bytes_max=1000, stored_bytes=2000)
    announce(world, 5, "s1", stored_bytes_max=1000)
    world.directory.put(Presence("sequencer", "z1", "s0", "0"))  # of an older release, or still replaying
    world.gateway.quotas.reported()
    assert world.gateway.quotas.storage_error
    for name in ("s1", "s2"):
        world.directory.drop(name)
    world.gateway.quotas.reported()
    assert world.gateway.quotas.storage_error
    announce(world, 10, "s3")
    assert not world.gateway.quotas.storage_error
