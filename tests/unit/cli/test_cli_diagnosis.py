"""The parts of `explain` and `doctor`: stages and advice, records in segments, journal entries, checks, bundles."""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.diagnosis import latency
from penstock.cli.diagnosis.bundle import visible_settings, without_secrets, write_bundle
from penstock.cli.diagnosis.checks import ERROR, OK, WARNING, check_machine, check_verbs
from penstock.cli.diagnosis.latency import COMMIT, FLUSH, PRODUCE, PUT, Times, advice, at_limit_share, times_of
from penstock.cli.diagnosis.record import ENTRIES_MAX, find_commit, found_in
from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import CommitSegment, Tick
from penstock.contracts.entries import Entry, encode_entry
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.ids import new_segment_id
from penstock.kafkawire.records import Record, build_batch
from penstock.objectstore.memory import MemoryStore
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore

NOW_MS = 1_700_000_000_000
SEGMENT_ID = new_segment_id(NOW_MS, bytes(10))
LABELS = (("for", "flush"),)


def extent(base_offset: int = 100, last_offset: int = 109) -> Extent:
    return Extent(base_offset, last_offset, SegmentRef(SEGMENT_ID, 0, 10_000, "flusher-1", "z1"), 64, 5_000, NOW_MS)


def samples(count: float, total: float, buckets: Sequence[tuple[str, float]]) -> latency.Samples:
    name = "penstock_flusher_wait_seconds"
    found = {(f"{name}_count", LABELS): count, (f"{name}_sum", LABELS): total}
    return found | {(f"{name}_bucket", (*LABELS, ("le", end))): value for end, value in buckets}


def test_the_times_of_a_stage_are_those_between_two_looks() -> None:
    before = samples(100, 50, [("0.01", 0), ("0.1", 0), ("+Inf", 100)])
    after = samples(300, 52, [("0.01", 197), ("0.1", 199), ("+Inf", 300)])
    assert times_of(FLUSH, before, after) == Times(200, 10.0, 100.0)
    assert times_of(FLUSH, {}, samples(10, 1, [("0.01", 1), ("+Inf", 10)])) == Times(10, 100.0, float("inf"))
    assert times_of(FLUSH, after, after) is None
    assert times_of(PUT, before, after) is None


def test_the_advice_begins_with_the_longest_stage() -> None:
    times = {PUT: Times(10, 60.0, 100.0), COMMIT: Times(10, 300.0, 500.0)}
    commit, put = advice(times, is_slow_store=True)
    assert commit.startswith("Commits are slow") and "penstock.lane=express" in put
    assert advice({PUT: Times(10, 2.0, 5.0)}, is_slow_store=False) == ["No stage is unusually long."]


def test_producers_that_the_round_trip_limits_are_found() -> None:
    name = "penstock_gateway_requests_at_limit_total"
    requests = ("penstock_gateway_request_seconds_count", (("api", "Produce"),))
    share = at_limit_share({(name, ()): 10.0, requests: 100.0}, {(name, ()): 100.0, requests: 200.0})
    assert share == 0.9 and at_limit_share({}, {}) == 0.0
    times = {PRODUCE: Times(100, 160.0, 200.0), PUT: Times(100, 60.0, 100.0)}
    first, second = advice(times, is_slow_store=True, at_limit_share=share)
    assert first.startswith("The round trip limits producers: 90% of") and second.startswith("The upload")


def batch(first: int, count: int, base_offset: int = 0) -> bytes:
    records = [Record(delta, NOW_MS + delta, b"k", b"%d" % (first + delta)) for delta in range(count)]
    return build_batch(records, base_offset=base_offset, producer_id=7, producer_epoch=1, base_sequence=first)


def test_offsets_in_a_flushed_segment_follow_from_the_extent() -> None:
    data = batch(100, 4) + batch(104, 6)
    found = found_in(data, 64, extent(), 105, has_offsets=False)
    assert found.record is not None and found.record.value == b"105"
    assert (found.base_offset, found.position) == (104, 64 + len(batch(100, 4)))


def test_offsets_in_a_compacted_segment_are_in_the_batches() -> None:
    data = batch(100, 4, 100) + batch(108, 2, 108) + b"a part of the next batch, because the read ends here"
    found = found_in(data, 64, extent(), 109, has_offsets=True)
    assert found.record is not None and found.record.value == b"109"
    with pytest.raises(Invalid, match="compaction removed the record at 105"):
        found_in(data, 64, extent(), 105, has_offsets=True)


async def journal_of(count: int, commit_at: int) -> MemoryJournal:
    """Entries 1 s apart; one of them commits the segment, whose birth is half a second before it."""
    journal = MemoryJournal(MemoryJournalStore())
    for number in range(count):
        ms = NOW_MS + 500 + (number - commit_at) * 1_000
        segment_id = SEGMENT_ID if number == commit_at else new_segment_id(ms, b"\1" * 10)
        commands: list[Any] = [Tick(ms), CommitSegment(ms, segment_id, 1, "flusher-1", "z1", [])]
        await journal.append(str(number), encode_entry(Entry(str(number), "sequencer-1", 0, bytes(16), [commands])))
    return journal


@pytest.mark.parametrize(("count", "commit_at"), [(1, 0), (50, 49), (3 * ENTRIES_MAX, 4_321), (3 * ENTRIES_MAX, 0)])
async def test_the_commit_of_a_segment_is_found_in_the_journal(count: int, commit_at: int) -> None:
    journal = await journal_of(count, commit_at)
    assert await find_commit(journal, SEGMENT_ID, NOW_MS) == (commit_at + 1, "sequencer-1", NOW_MS + 500)


async def test_a_commit_that_was_removed_is_not_found() -> None:
    journal = await journal_of(20, 5)
    await journal.purge(10)
    assert await find_commit(journal, SEGMENT_ID, NOW_MS) is None


def test_the_machine_is_checked(tmp_path: Path) -> None:
    found = {each.check: each for each in check_machine(tmp_path / "new", "127.0.0.1:0x", "127.0.0.1:1", {})}
    assert found["python"].mark == found["disk"].mark == found["nats-server"].mark == OK
    assert found["port --kafka"].mark == WARNING and "must be HOST:PORT" in found["port --kafka"].fact
    assert all(each.advice for each in found.values() if each.mark != OK)


async def test_the_verbs_of_a_good_store_work() -> None:
    store = MemoryStore()
    found = await check_verbs(store, "default/doctor/", "one")
    assert [each.mark for each in found] == [OK] * 5
    assert await store.list("default/doctor/") == []


class Replacing(MemoryStore):
    """A store that ignores the condition of a put."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        await self.delete([key])
        return await super().put(key, body, if_match=if_match)


class ReadOnly(MemoryStore):
    """A store with a key that may only read."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        raise Invalid("access denied")


class Silent(MemoryStore):
    """A store that does not answer."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        raise Unavailable("no answer")


async def test_a_store_without_conditional_puts_is_an_error() -> None:
    found = {each.check: each for each in await check_verbs(Replacing(), "default/doctor/", "one")}
    assert [name for name, each in found.items() if each.mark == ERROR] == ["store: put only if absent"]


async def test_a_store_that_refuses_or_does_not_answer_is_reported_once() -> None:
    (refused,) = await check_verbs(ReadOnly(), "default/doctor/", "one")
    (silent,) = await check_verbs(Silent(), "default/doctor/", "one")
    assert (refused.mark, silent.mark) == (WARNING, ERROR)
    assert "access denied" in refused.fact and silent.fact == "no answer"


def test_a_bundle_has_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "gateway-1.log").write_text("connected to nats://alice:hunter2@host:4222\n")
    environ = {
        "PENSTOCK_NATS_PASSWORD": "hunter2",
        "PENSTOCK_STORE_URL": "s3://b/p?access_key=hunter2&secret_key=hunter2&region=eu",
        "PENSTOCK_CLUSTER": "default",
        "HOME": "/home/alice",
    }
    path = tmp_path / "report.tar.gz"
    write_bundle(path, [{"check": "disk", "mark": OK}], {"gateway-1": "penstock_x 1\n"}, tmp_path, environ)
    with tarfile.open(path) as archive:
        files = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
    names = {name.removeprefix("penstock-doctor/") for name in files}
    assert names == {
        *("findings.json", "settings.json", "system.txt", "packages.txt"),
        *("metrics/gateway-1.txt", "logs/gateway-1.log"),
    }
    assert not any("hunter2" in text or "HOME" in text for text in files.values())
    settings = json.loads(files["penstock-doctor/settings.json"])
    assert settings["PENSTOCK_STORE_URL"].endswith("&region=eu") and settings["PENSTOCK_CLUSTER"] == "default"
    with pytest.raises(Invalid, match="cannot write the bundle"):
        write_bundle(path, [], {}, tmp_path, {})  # it never replaces a file


def test_secrets_are_found_by_name_and_by_form() -> None:
    assert visible_settings({"PENSTOCK_HTTP_TOKEN_FILE": "/x"}) == {"PENSTOCK_HTTP_TOKEN_FILE": "(hidden)"}
    assert without_secrets("tls://user:word@host/x?password=word end") == "tls://(hidden)@host/x?password=(hidden) end"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://user:w@ord@host:4222 end", "nats://(hidden)@host:4222 end"),
        ("nats://user:wo/rd@host:4222 end", "nats://(hidden)@host:4222 end"),
        ('{"at":"http://host/x","as":"user@host"}', '{"at":"http://host/x","as":"user@host"}'),
    ],
)
def test_a_password_of_any_characters_is_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
