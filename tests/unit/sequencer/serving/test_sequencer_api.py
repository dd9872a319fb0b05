"""A sequencer's answers to any request: failures are contained, work is limited, and the shape fits the request."""

import asyncio
import functools

import msgspec
import pytest

from penstock.contracts import codec, subjects
from penstock.contracts.commands import (
    Command,
    CommandReply,
    CommandRequest,
    CommitSegment,
    GroupProtocol,
    JoinGroup,
    RecordArchived,
    RecordSnapshot,
    Rejected,
    ReleaseCustody,
    RemoveSegments,
    ReplaceExtents,
    TakeCustody,
    Tick,
    TopicCreated,
    UndeleteTopic,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.janitor import JournalQuery, JournalView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.contracts.rejections import Rejection
from penstock.contracts.senders import COMMANDS
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.limits import SequencerLimits, ServingLimits
from penstock_sequencer.serving import request_server
from penstock_sequencer.serving.query_table import QUERY_HANDLERS, QueryHandler
from penstock_sequencer.serving.request_server import RequestLimits, RequestServer
from tests.testkit.fakes.memory_journal import ENTRY_BYTES_MAX, MemoryJournal
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig

COMMAND = subjects.sequencer_command(CLUSTER, subjects.Sender.CLIENT)
COMMAND_SUBJECTS = [
    *(subjects.sequencer_command(CLUSTER, sender) for sender in subjects.Sender),
    subjects.sequencer_command_of_any(CLUSTER),
]
SOME_OF_EACH: list[Command] = [
    Tick(1),
    CommitSegment(1, bytes(16), 64, "f", "z", []),
    ReplaceExtents(1, "job", [], [], []),
    RemoveSegments(1, []),
    UndeleteTopic(1, "t", bytes(16)),
]
GARBAGE = [b"", b"\x01", b"\x63nonsense", b"\x01\xc1", codec.encode(MetadataQuery(0, []))[:-1]]


async def raw(one: SequencerRig, subject: str, data: bytes) -> bytes:
    return await one.client_bus.request(subject, data, 5)


async def reached(one: SequencerRig) -> None:
    """Wait until the cluster may journal all commands."""
    await until(lambda: one.level == NEWEST_LEVEL)


def test_every_query_of_the_contracts_is_answered() -> None:
    assert set(QUERY_HANDLERS) == set(subjects.QUERY_NAMES)
    for handler in QUERY_HANDLERS.values():
        assert "min_sequence" in handler.kind.__struct_fields__
        assert getattr(handler.fail(7, "why"), "failure", None) == "why"


@pytest.mark.parametrize(
    "garbage", [b"", b"\x01", b"\x63nonsense", b"\x01\xc1", codec.encode(MetadataQuery(0, []))[:-1]]
)
@pytest.mark.parametrize("name", [request_server.COMMAND, *QUERY_HANDLERS])
def test_an_unreadable_request_gets_a_failure_and_the_next_request_an_answer(name: str, garbage: bytes) -> None:
    @in_virtual_time
    async def check() -> None:
        async with rig("a") as one:
            subject = COMMAND if name == request_server.COMMAND else subjects.sequencer_query(CLUSTER, name)
            answer = await raw(one, subject, garbage)
            kind = CommandReply if name == request_server.COMMAND else type(QUERY_HANDLERS[name].fail(0, ""))
            assert getattr(codec.decode(answer, kind), "failure", None)
            (created,) = await one.client.command([one.create_topic("t")], deadline_s=5)
            assert isinstance(created, TopicCreated)

    check()


@in_virtual_time
async def test_a_bug_fails_only_its_request() -> None:
    def broken(_state: State, _query: MetadataQuery) -> MetadataView:
        raise ZeroDivisionError("a bug")

    handler = QueryHandler(MetadataQuery, broken, QUERY_HANDLERS["metadata"].fail)
    async with rig() as one:
        queries = QUERY_HANDLERS | {"metadata": handler}
        one.make_request_server = functools.partial(RequestServer, queries=queries)
        await one.start("a")
        with pytest.raises(Unavailable, match="internal error: ZeroDivisionError"):
            await one.client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=0.02)
        (created,) = await one.client.command([one.create_topic("t")], deadline_s=5)
        assert isinstance(created, TopicCreated)


@in_virtual_time
async def test_a_request_without_commands_is_answered_without_an_entry() -> None:
    async with rig("a") as one:
        reply = codec.decode(await raw(one, COMMAND, codec.encode(CommandRequest([]))), CommandReply)
        assert reply == CommandReply(0, [])
        assert one.store.last_sequence == 0


@in_virtual_time
async def test_the_journals_stream_is_reported_as_the_marker_names_it() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        view = await one.client.query("journal", JournalQuery(0), JournalView)
        assert view == JournalView(view.sequence, subjects.journal_stream(CLUSTER), one.store.created)
        assert view.sequence >= 1


@in_virtual_time
async def test_no_stream_is_reported_that_the_server_does_not_have() -> None:
    async with rig("a") as one:
        one.store.set_available(False)
        answer = await raw(one, subjects.sequencer_query(CLUSTER, "journal"), codec.encode(JournalQuery(0)))
        view = codec.decode(answer, JournalView)
        assert view.failure
        assert (view.stream, view.created) == ("", "")


class NarrowJournal(MemoryJournal):
    """Accepts only small entries."""

    @property
    def entry_bytes_max(self) -> int:
        return 2_000


@in_virtual_time
async def test_commands_that_fit_no_entry_are_rejected_for_good() -> None:
    async with rig() as one:
        one.make_journal = NarrowJournal
        await one.start("a")
        big = one.create_topic("x" * 3_000)
        small = one.create_topic("t")
        outcomes = await one.client.command([small, big], deadline_s=5)
        assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected]
        assert {outcome.rejection for outcome in outcomes if isinstance(outcome, Rejected)} == {
            Rejection.INVALID_REQUEST
        }
        assert one.store.last_sequence == 0
        assert ENTRY_BYTES_MAX > 2_000


@pytest.mark.parametrize(
    "own", [TakeCustody(1, "x"), RecordArchived(1, "x", 1), RecordSnapshot(1, "x", 1), ReleaseCustody(1, "x")]
)
@pytest.mark.parametrize("subject", COMMAND_SUBJECTS)
def test_internal_commands_on_the_bus_are_rejected_with_their_whole_request(own: Command, subject: str) -> None:
    @in_virtual_time
    async def check() -> None:
        async with rig("a") as one:
            request = CommandRequest([one.create_topic("t"), own])
            reply = codec.decode(await raw(one, subject, codec.encode(request)), CommandReply)
            rejections = [outcome.rejection for outcome in reply.outcomes if isinstance(outcome, Rejected)]
            assert rejections == [Rejection.INVALID_REQUEST] * 2
            assert one.store.last_sequence == 0

    check()


@pytest.mark.parametrize("sender", subjects.Sender)
def test_a_sender_gets_only_its_own_kind_of_commands_into_the_journal(sender: subjects.Sender) -> None:
    @in_virtual_time
    async def check() -> None:
        async with rig("a") as one:
            await reached(one)
            subject = subjects.sequencer_command(CLUSTER, sender)
            for command in SOME_OF_EACH:
                before = one.store.last_sequence
                reply = codec.decode(await raw(one, subject, codec.encode(CommandRequest([command]))), CommandReply)
                refusal = Rejected(Rejection.INVALID_REQUEST, f"{type(command).__name__} is not allowed on {subject}")
                assert (reply.failure, len(reply.outcomes)) == (None, 1)
                assert (reply.outcomes == [refusal]) == (type(command) not in COMMANDS[sender])
                assert (reply.sequence > before) == (type(command) in COMMANDS[sender])

    check()


@in_virtual_time
async def test_the_subject_of_release_0_1_takes_the_commands_of_all_its_senders() -> None:
    async with rig("a") as one:
        await reached(one)
        subject = subjects.sequencer_command_of_any(CLUSTER)
        for command in SOME_OF_EACH:
            before = one.store.last_sequence
            reply = codec.decode(await raw(one, subject, codec.encode(CommandRequest([command]))), CommandReply)
            assert (reply.failure, len(reply.outcomes)) == (None, 1)
            assert reply.sequence > before


@in_virtual_time
async def test_an_answer_that_fits_no_message_becomes_a_failure_with_that_reason() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic(f"topic-{number}") for number in range(100)], deadline_s=5)
        one.hub.message_bytes_max = 1_000
        with pytest.raises(Unavailable, match=r"the answer of \d+ bytes is over the 1000 that a message holds"):
            await one.client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=0.02)
        view = await one.client.query("metadata", MetadataQuery(0, ["topic-7"]), MetadataView)
        assert [topic.name for topic in view.topics] == ["topic-7"]


@in_virtual_time
async def test_an_entry_whose_announcement_fits_no_message_is_not_announced_so_that_the_gap_shows() -> None:
    async with rig("a") as one:
        one.hub.message_bytes_max = 6_000
        commands = [one.create_topic(f"topic-{number}") for number in range(3)]
        await one.client.command(commands, deadline_s=5)
        one.hub.message_bytes_max = 40
        await one.running["a"].sequencer.proposer.propose([one.create_topic("u" * 60)])
        one.hub.message_bytes_max = 6_000
        await one.client.command([one.create_topic("v")], deadline_s=5)
        assert [each.sequence for each in one.advanced()] == [1, 3]
        assert one.running["a"].metric("unannounced_entries_total") == 1


@in_virtual_time
async def test_more_requests_than_allowed_are_rejected_at_once_and_served_later() -> None:
    limits = SequencerLimits(serving=ServingLimits(requests=RequestLimits(requests_max=5)))
    async with rig("a", limits=limits) as one:
        one.store.set_available(False)
        held = [asyncio.create_task(one.client.command([one.create_topic(f"t{n}")], deadline_s=9)) for n in range(5)]
        await asyncio.sleep(0.1)
        request = codec.encode(CommandRequest([one.create_topic("late")]))
        reply = codec.decode(await raw(one, COMMAND, request), CommandReply)
        assert reply.failure is not None
        assert reply.failure.startswith("overloaded: 5 requests")
        one.store.set_available(True)
        await asyncio.gather(*held)
        (created,) = await one.client.command([one.create_topic("late")], deadline_s=5)
        assert isinstance(created, TopicCreated)


@in_virtual_time
async def test_a_drained_replica_has_answered_all_accepted_requests_and_accepts_no_more() -> None:
    async with rig("a") as one:
        one.store.set_available(False)
        commands = [[one.create_topic(f"t{number}")] for number in range(9)]
        asked = [asyncio.create_task(one.client.command(each, deadline_s=5, attempt_s=5)) for each in commands]
        await asyncio.sleep(0.1)
        drained = asyncio.create_task(one.running["a"].sequencer.drain())
        await asyncio.sleep(1)
        assert not drained.done()
        with pytest.raises(Unavailable, match="no subscriber"):
            await one.client.command([one.create_topic("late")], deadline_s=0.01)
        one.store.set_available(True)
        await drained
        assert [type(outcome) for task in asked for outcome in await task] == [TopicCreated] * 9


@in_virtual_time
async def test_a_commits_answer_has_the_machines_clock_which_does_not_go_back_with_the_wall_clock() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        clock_ms = one.running["a"].sequencer.replica.state.clock_ms
        assert 0 < clock_ms == one.client.seen_clock_ms
        late = msgspec.structs.replace(one.create_topic("u"), now_ms=clock_ms - 3_600_000)
        one.client.seen_clock_ms = 0
        await one.client.command([late], deadline_s=5)
        assert one.client.seen_clock_ms >= clock_ms


@in_virtual_time
async def test_a_request_that_comes_while_the_sequencer_ends_is_left_to_other_sequencers() -> None:
    async with rig("a") as one:
        ending = one.running["a"]
        await ending.end()
        with pytest.raises(Unavailable):
            await raw(one, COMMAND, codec.encode(CommandRequest([one.create_topic("t")])))
        assert not ending.bus.has_failed


@in_virtual_time
async def test_a_command_that_is_too_large_for_every_group_is_not_journaled() -> None:
    metadata = b"too large" * 300_000
    times_ms = (10_000, 10_000)
    protocols = [GroupProtocol("range", metadata)]
    join = JoinGroup(0, "g", "", "m", None, False, "client", "host", *times_ms, "consumer", protocols)
    async with rig("a") as one:
        (outcome,) = await one.client.command([join], deadline_s=5)
        assert outcome == Rejected(Rejection.INVALID_REQUEST, f"1 protocols of {len(metadata) + 5} bytes")
        await one.client.command([one.create_topic("t")], deadline_s=5)
        newest = await MemoryJournal(one.store).last_sequence()
        entries = [one.store.entry(sequence) or b"" for sequence in range(1, newest + 1)]
        assert any(entries)
        assert all(len(entry) < len(metadata) for entry in entries)
