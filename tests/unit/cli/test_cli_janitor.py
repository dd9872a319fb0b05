"""`penstock janitor explain`: prints the janitor's answer, or one clear sentence if there is none."""

import json

import pytest

from penstock.cli import janitor, main
from penstock.contracts import codec, subjects
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import ExplainReply, ExplainRequest
from penstock.runtime.bus.bus import Inbound
from tests.testkit.fakes.memory_bus import MemoryHub

REPLY = ExplainReply("waiting", "its last extent went 20 s ago, and the grace is 600 s", {"level": "1", "bytes": "9"})


async def ask(hub: MemoryHub, key: str = "some/key") -> ExplainReply:
    return await janitor.ask_janitor(hub.connect("cli"), "c", key)


async def answering(hub: MemoryHub, reply: ExplainReply) -> list[str]:
    """Start a janitor with this reply; returns the list of the keys in its requests."""
    asked: list[str] = []

    async def answer(message: Inbound) -> None:
        asked.append(codec.decode(message.data, ExplainRequest).key)
        await message.respond(codec.encode(reply))

    await hub.connect("janitor").subscribe(subjects.explain("c"), answer, subjects.JANITOR_QUEUE)
    return asked


async def test_the_janitors_answer_is_returned_unchanged() -> None:
    hub = MemoryHub()
    asked = await answering(hub, REPLY)
    assert await ask(hub) == REPLY
    assert asked == ["some/key"]


async def test_without_a_janitor_the_error_reports_it() -> None:
    with pytest.raises(Unavailable, match="no janitor runs for cluster 'c'"):
        await ask(MemoryHub())


async def test_the_reason_of_a_janitor_that_cannot_answer_is_reported() -> None:
    hub = MemoryHub()
    await answering(hub, ExplainReply("", "", failure="this is another cluster's bucket"))
    with pytest.raises(Unavailable, match="the janitor cannot answer now: this is another cluster's bucket"):
        await ask(hub)


def test_facts_follow_the_state() -> None:
    assert janitor.as_text(REPLY) == (
        "waiting: its last extent went 20 s ago, and the grace is 600 s\n  level  1\n  bytes  9"
    )
    assert janitor.as_text(ExplainReply("unknown", "no such key")) == "unknown: no such key"


def test_json_has_state_reason_and_facts() -> None:
    assert json.loads(janitor.as_json(REPLY)) == {
        "verdict": "waiting",
        "reason": REPLY.reason,
        "facts": {"level": "1", "bytes": "9"},
    }


def test_without_a_running_cluster_it_prints_one_sentence_and_returns_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_NATS_URL", raising=False)
    assert main(["janitor", "explain", "k", "--data", "/nowhere"]) == 1
    assert capsys.readouterr().err.startswith("penstock: no `penstock up` has run in /nowhere")
