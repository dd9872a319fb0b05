"""Express segments are in the landing store, all other objects in the final one; both together are one store."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.ids import new_landed_id, new_segment_id
from penstock.objectstore import Full, NotDeleted, has_landing, open_store
from penstock.objectstore.landed import LandedStore
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.store import Listing
from penstock.segment.keys import is_landing_key, may_list_segments, segment_key, snapshot_key
from tests.contract.test_objectstore_contract import key_file_in

BORN_MS = 1_700_000_000_000
LANDING_KEYS = [segment_key("", "c", 0, new_landed_id(BORN_MS, bytes([number]) * 10)) for number in range(4)]
FINAL_KEYS = [segment_key("", "c", 0, new_segment_id(BORN_MS, bytes([number]) * 10)) for number in range(4)]
FINAL_KEYS += [segment_key("", "c", 1, new_landed_id(BORN_MS, bytes(10))), snapshot_key("", "c", 7)]


class Failing(MemoryStore):
    """A store whose deletes fail."""

    error: Unavailable = Unavailable("no answer")

    async def delete(self, keys: Sequence[str]) -> None:
        raise self.error


async def test_the_key_decides_where_an_object_is() -> None:
    final, landing = await open_store("memory://final-1"), await open_store("memory://landing-1")
    both = await open_store("memory://final-1?landing=memory://landing-1")
    for key in (*LANDING_KEYS, *FINAL_KEYS):
        await both.put(key, [key.encode()])
        assert await both.get(key) == key.encode()
    assert [each.key for each in await landing.list("")] == sorted(LANDING_KEYS)
    assert [each.key for each in await final.list("")] == sorted(FINAL_KEYS)
    assert [each.key for each in await both.list("")] == sorted([*LANDING_KEYS, *FINAL_KEYS])
    await both.delete([*LANDING_KEYS, *FINAL_KEYS])
    assert await final.list("") == await landing.list("") == []


async def test_express_segments_are_encrypted_like_all_objects(tmp_path: Path) -> None:
    landing = await open_store("memory://landing-2")
    both = await open_store(f"memory://final-2?landing=memory://landing-2&encryption_keys={key_file_in(tmp_path)}")
    await both.put(LANDING_KEYS[0], [b"records"])
    assert await both.get(LANDING_KEYS[0]) == b"records"
    assert b"records" not in await landing.get(LANDING_KEYS[0])


@pytest.mark.parametrize("is_final", [True, False])
async def test_a_delete_that_fails_in_one_store_names_exactly_its_keys(is_final: bool) -> None:
    stores: tuple[MemoryStore, MemoryStore] = (Failing(), MemoryStore()) if is_final else (MemoryStore(), Failing())
    both = LandedStore(*stores, is_landing_key)
    for key in (LANDING_KEYS[0], FINAL_KEYS[0]):
        await both.put(key, [b""])
    with pytest.raises(NotDeleted) as failed:
        await both.delete([LANDING_KEYS[0], FINAL_KEYS[0]])
    left = [FINAL_KEYS[0] if is_final else LANDING_KEYS[0]]
    assert [*failed.value.keys] == [each.key for each in await both.list("")] == left


async def test_keys_that_a_store_rejects_are_reported_as_rejected() -> None:
    final = Failing()
    final.error = NotDeleted("denied", FINAL_KEYS[:2], FINAL_KEYS[:1])
    with pytest.raises(NotDeleted) as failed:
        await LandedStore(final, Failing(), is_landing_key).delete([*LANDING_KEYS, *FINAL_KEYS])
    assert [*failed.value.keys] == [*FINAL_KEYS[:2], *LANDING_KEYS]
    assert [*failed.value.rejected] == FINAL_KEYS[:1]


@pytest.mark.parametrize("landing", ["memory://a%3Flanding%3Dmemory://b", "memory://a%3Fencryption_keys%3D/k", "a"])
async def test_a_landing_store_is_an_address_without_a_landing_store_or_keys_of_its_own(landing: str) -> None:
    with pytest.raises(Invalid, match=r"landing store has|a store address is"):
        await open_store(f"memory://final?landing={landing}")


async def test_the_servers_of_a_service_are_no_address_elsewhere() -> None:
    with pytest.raises(Invalid, match="stands for the NATS servers of a service"):
        await open_store("memory://final?landing=jetstream:?replicas=3")


def test_an_address_shows_whether_there_is_a_landing_store() -> None:
    assert has_landing("s3://bucket/?region=x&landing=jetstream:")
    assert not has_landing("s3://bucket/?region=x")
    assert issubclass(Full, Invalid), "a retry does not make room"


@pytest.mark.parametrize(
    ("prefix", "lists_landing"),
    [
        *((prefix, True) for prefix in ("", "c/", "c/seg", "c/segments/001/", "journal/segments/", "journal/")),
        *((prefix, False) for prefix in ("c/journal/", "c/journal/000", "c/snapshots/", "c/journal-identity")),
    ],
)
async def test_a_listing_without_segments_does_not_need_the_landing_store(prefix: str, lists_landing: bool) -> None:
    class Absent(MemoryStore):
        async def list(self, prefix: str, after: str = "", limit: int = 1_000) -> Listing:
            raise Unavailable("the landing store is gone")

    both = LandedStore(MemoryStore(), Absent(), is_landing_key, may_list_segments)
    if lists_landing:
        with pytest.raises(Unavailable):
            await both.list(prefix)
    else:
        assert await both.list(prefix) == []
