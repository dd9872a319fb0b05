"""How the journal interprets JetStream's answers."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from penstock.contracts.errors import Corrupt, Invalid, Unavailable, Undelivered
from penstock.runtime.journal import JournalLost, JournalStuck
from penstock.runtime.nats.journal import JournalLimits, NatsJournal
from penstock.runtime.nats.tail import RawMessage
from tests.testkit.fakes.virtual_time import in_virtual_time

LIMITS = JournalLimits()
NO_ANSWER = Unavailable("no answer on penstock.c.journal within 2 s")
NOT_FOUND = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}


def stream(last: int = 0, first: int = 1, created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {
        "created": created,
        "config": {"name": "penstock-journal-c", "subjects": ["penstock.c.journal"], "num_replicas": 3},
        "state": {"messages": last + 1 - first, "first_seq": first, "last_seq": last},
    }


class Answer(msgspec.Struct):
    """A message as the client delivers it."""

    data: bytes
    reply: str = ""
    headers: dict[str, str] | None = None


class Script:
    """A connection with prepared answers per subject."""

    message_bytes_max = 10_000
    is_clustered = False

    def __init__(self, **answers: object) -> None:
        self.answers: dict[str, object] = {"info": stream()} | answers
        self.hold_info: asyncio.Event | None = None
        self.asked: list[tuple[str, bytes, dict[str, str] | None]] = []

    async def exchange(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> RawMessage:
        assert timeout_s > 0
        self.asked.append((subject, data, headers))
        is_info = subject.startswith("$JS.API.STREAM.INFO.")
        answer = self.answers["info" if is_info else "append"]
        if is_info and self.hold_info is not None:
            await self.hold_info.wait()
        if answer is NO_ANSWER:
            await asyncio.sleep(timeout_s)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    async def publish(self, subject: str, data: bytes) -> None:
        raise AssertionError(f"nothing is published here: {subject} {data!r}")

    async def listen(self, inbox: str, deliver: Callable[[RawMessage], None]) -> Callable[[], Awaitable[None]]:
        raise AssertionError(f"nothing is subscribed here: {inbox} {deliver}")

    def new_inbox(self) -> str:
        return "_INBOX.x"

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        return listener


async def test_an_append_names_its_entry_and_the_stream_it_is_for() -> None:
    script = Script(append={"stream": "penstock-journal-c", "seq": 7})
    assert await NatsJournal(script, "c").append("entry-1", b"data") == 7
    assert script.asked == [
        (
            "penstock.c.journal",
            b"data",
            {"Nats-Msg-Id": "entry-1", "Nats-Expected-Stream": "penstock-journal-c"},
        )
    ]


async def test_a_duplicate_has_the_sequence_of_the_first() -> None:
    script = Script(append={"stream": "penstock-journal-c", "seq": 3, "duplicate": True})
    assert await NatsJournal(script, "c").append("entry-1", b"data") == 3


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": 503, "err_code": 10077, "description": "maximum bytes exceeded"}},
        {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence", "seq": 4}},
        {"stream": "penstock-journal-c", "seq": 0, "duplicate": True},
        Unavailable("the connection broke while waiting for an answer on penstock.c.journal"),
        Undelivered("no subscriber on penstock.c.journal"),
    ],
)
async def test_every_answer_but_a_clear_acknowledgement_is_an_unknown_outcome(answer: object) -> None:
    with pytest.raises(Unavailable) as caught:
        await NatsJournal(Script(append=answer), "c").append("entry-1", b"data")
    assert not isinstance(caught.value, Undelivered)


async def test_an_append_to_another_stream_is_a_lost_journal() -> None:
    answer = {"error": {"code": 400, "err_code": 10060, "description": "expected stream does not match"}}
    with pytest.raises(JournalLost, match="is gone: another stream has its subject"):
        await NatsJournal(Script(append=answer), "c").append("entry-1", b"data")


async def test_an_append_to_no_stream_is_a_lost_journal_if_the_stream_is_not_there() -> None:
    with pytest.raises(JournalLost, match="there is no journal"):
        await NatsJournal(Script(append=NOT_FOUND, info=NOT_FOUND), "c").append("entry-1", b"data")
    with pytest.raises(Unavailable, match="did not accept entry entry-1: stream not found"):
        await NatsJournal(Script(append=NOT_FOUND), "c").append("entry-1", b"data")


async def test_an_append_without_a_subscriber_is_a_lost_journal_if_the_stream_is_not_there() -> None:
    script = Script(append=Undelivered("no subscriber"), info=NOT_FOUND)
    with pytest.raises(JournalLost, match="there is no journal"):
        await NatsJournal(script, "c").append("entry-1", b"data")


async def test_a_purge_names_the_first_entry_to_keep_and_rejects_a_future_one() -> None:
    script = Script(info=stream(7), append={"success": True, "purged": 5})
    await NatsJournal(script, "c").purge(5)
    assert script.asked[-1] == ("$JS.API.STREAM.PURGE.penstock-journal-c", b'{"seq":6}', None)
    with pytest.raises(Invalid, match="up to entry 8: it ends at 7"):
        await NatsJournal(script, "c").purge(8)


async def test_a_rejected_purge_may_be_tried_again() -> None:
    rejected = {"error": {"code": 503, "err_code": 10008, "description": "system temporarily unavailable"}}
    with pytest.raises(Unavailable, match="cannot be purged: system temporarily unavailable"):
        await NatsJournal(Script(info=stream(7), append=rejected), "c").purge(5)


async def test_the_largest_entry_leaves_room_for_its_headers() -> None:
    journal = NatsJournal(Script(append={"seq": 1}), "c")
    assert journal.entry_bytes_max == 10_000 - 4096
    with pytest.raises(Invalid, match="journal entry of 5905 bytes is over the limit of 5904"):
        await journal.append("entry-1", bytes(5905))


async def test_a_description_has_the_state_that_the_server_reports() -> None:
    info = await NatsJournal(Script(info=stream(last=9, first=4)), "c").describe()
    assert (info.first_sequence, info.last_sequence, info.replicas) == (4, 9, 3)
    assert info.created == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("heard_s", "is_sure"),
    [
        ((0.1, 0.2), True),
        ((0.1, 60.0), True),  # one of three is away
        ((0.1, 0.0), True),
        ((5.0, 5.0), False),  # after a pause, or cut off
        ((3.0, 3.1), False),
        ((0.0, 0.0), False),  # no message ever
        ((), False),
    ],
)
async def test_only_a_leader_that_hears_most_servers_reports_the_last_sequence(
    heard_s: tuple[float, ...], is_sure: bool
) -> None:
    peers = [{"name": "n", "current": True, "active": round(each * 1e9)} for each in heard_s]
    info = stream(last=9) | {"cluster": {"leader": "n0", "replicas": peers}}
    journal = NatsJournal(Script(info=info), "c")
    if is_sure:
        assert await journal.last_sequence() == 9
        return
    with pytest.raises(Unavailable, match="has lost the other servers"):
        await journal.last_sequence()
    assert (await journal.describe()).last_sequence == 9


async def test_a_single_server_reports_the_last_sequence() -> None:
    assert await NatsJournal(Script(info=stream(last=9)), "c").last_sequence() == 9


async def test_a_stream_that_went_back_has_lost_entries() -> None:
    script = Script(info=stream(last=9), append={"seq": 12})
    journal = NatsJournal(script, "c")
    await journal.describe()
    script.answers["info"] = stream(last=8)
    with pytest.raises(JournalLost, match="went back to sequence 8 from 9"):
        await journal.describe()
    await journal.append("entry-1", b"data")
    script.answers["info"] = stream(last=11)
    with pytest.raises(JournalLost, match="went back to sequence 11 from 12"):
        await journal.describe()


async def test_a_description_overtaken_by_later_appends_is_no_loss() -> None:
    """The server may send the acknowledgements of later appends before an answer that it prepared earlier."""
    script = Script(append={"seq": 12})
    journal = NatsJournal(script, "c")
    await journal.describe()
    answer_held = asyncio.Event()
    script.hold_info = answer_held
    script.answers["info"] = stream(last=9)
    describing = asyncio.create_task(journal.describe())
    await asyncio.sleep(0)
    assert await journal.append("entry-1", b"data") == 12
    answer_held.set()
    assert (await describing).last_sequence == 9
    script.answers["info"] = stream(last=11)
    with pytest.raises(JournalLost, match="went back to sequence 11 from 12"):
        await journal.describe()


async def test_a_stream_created_at_another_time_is_another_journal() -> None:
    script = Script()
    journal = NatsJournal(script, "c")
    await journal.describe()
    script.answers["info"] = stream(created="2026-02-02T00:00:00Z")
    with pytest.raises(JournalLost, match="was created again"):
        await journal.describe()


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": 503, "err_code": 10008, "description": "temporarily unavailable"}},
        {"created": "2026-01-01T00:00:00Z"},
        stream() | {"cluster": {"name": "c"}},
        Undelivered("no subscriber"),
    ],
)
async def test_a_stream_that_cannot_be_described_may_come_back(answer: object) -> None:
    with pytest.raises(Unavailable):
        await NatsJournal(Script(info=answer), "c").describe()


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"seq": "one"}', b"\xff"])
async def test_an_answer_that_is_no_answer_is_corrupt(answer: bytes) -> None:
    with pytest.raises(Corrupt, match="jetstream's answer is no AppendReply"):
        await NatsJournal(Script(append=answer), "c").append("entry-1", b"data")


async def append_unanswered(journal: NatsJournal, seconds: float) -> None:
    """Append for so many seconds, one entry after the other, without an answer."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    while loop.time() < until_s:
        with pytest.raises(Unavailable):
            await journal.append("entry-1", b"data")


@in_virtual_time
async def test_a_stream_that_answers_requests_but_for_long_no_append_is_stuck() -> None:
    journal = NatsJournal(Script(append=NO_ANSWER), "c")
    await append_unanswered(journal, LIMITS.stuck_after_s)
    with pytest.raises(
        JournalStuck, match=r"penstock-journal-c .*has answered no append for 15 s.*restart the nats-serv"
    ):
        await journal.append("entry-2", b"data")


@in_virtual_time
async def test_a_leader_in_a_cluster_may_accept_no_append_for_longer_because_it_lost_the_others() -> None:
    script = Script(append=NO_ANSWER)
    script.is_clustered = True
    journal = NatsJournal(script, "c")
    await append_unanswered(journal, LIMITS.stuck_in_cluster_after_s)
    with pytest.raises(JournalStuck, match="has answered no append for 60 s"):
        await journal.append("entry-2", b"data")


@in_virtual_time
async def test_in_a_cluster_a_stream_that_went_back_may_be_a_server_with_an_old_state() -> None:
    script = Script(info=stream(last=9))
    script.is_clustered = True
    journal = NatsJournal(script, "c")
    await journal.describe()
    script.answers["info"] = stream(last=8)
    with pytest.raises(Unavailable, match=r"went back to sequence 8 from 9 \(the state of this nats server may be"):
        await journal.describe()
    script.answers["info"] = stream(last=10)
    assert (await journal.describe()).last_sequence == 10


@in_virtual_time
async def test_in_a_cluster_a_vanished_stream_is_lost_after_the_proof() -> None:
    script = Script(append=Undelivered("no subscriber"), info=NOT_FOUND)
    script.is_clustered = True
    journal = NatsJournal(script, "c")
    loop = asyncio.get_running_loop()
    while loop.time() < LIMITS.loss.proven_after_s:
        with pytest.raises(Unavailable):
            await journal.append("entry-1", b"data")
        await asyncio.sleep(0.5)
    with pytest.raises(JournalLost, match="there is no journal"):
        await journal.append("entry-1", b"data")


async def test_also_in_a_cluster_a_stream_created_at_another_time_is_another_journal_at_once() -> None:
    script = Script(info=stream(last=9))
    script.is_clustered = True
    journal = NatsJournal(script, "c")
    await journal.describe()
    script.answers["info"] = stream(created="2026-02-02T00:00:00Z")
    with pytest.raises(JournalLost, match="was created again"):
        await journal.describe()


@pytest.mark.parametrize(
    "other",
    [
        {"append": {"seq": 1}},
        {"append": {"error": {"code": 503, "err_code": 10077, "description": "maximum bytes exceeded"}}},
        {"append": Undelivered("no subscriber on penstock.c.journal")},
        {"append": NO_ANSWER, "info": NO_ANSWER},
        {"append": NO_ANSWER, "info": stream(last=1)},
    ],
    ids=["accepted", "rejected", "no subscriber", "nothing is answered", "accepted from another process"],
)
@in_virtual_time
async def test_any_other_result_restarts_the_wait_for_a_stuck_stream(other: dict[str, object]) -> None:
    script = Script(append=NO_ANSWER)
    journal = NatsJournal(script, "c")
    await append_unanswered(journal, LIMITS.stuck_after_s)
    usual = script.answers
    script.answers = usual | other
    with contextlib.suppress(Unavailable):
        await journal.append("entry-2", b"data")
    script.answers = usual | {"info": stream(last=1)}
    await append_unanswered(journal, LIMITS.stuck_after_s - LIMITS.append_timeout_s)
