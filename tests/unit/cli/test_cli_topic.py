"""`penstock topic deleted` and `undelete`: the list, the choice of the topic to bring back, and error texts."""

import json

import pytest

from penstock.cli import main, parse_arguments
from penstock.cli.output import Listing, as_text
from penstock.cli.topics import deleted
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import topic_id_text
from penstock.contracts.queries.topics import DeletedTopicView

DELETED_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
OLD = DeletedTopicView("orders", bytes(range(16)), 3, 1_234_567, DELETED_MS, DELETED_MS + 3_600_000)
NEW = DeletedTopicView("orders", bytes(range(1, 17)), 12, 0, DELETED_MS + 1_000, 2**63 - 1)
OTHER = DeletedTopicView("payments-by-country", b"\xff" * 16, 1, 5, DELETED_MS, DELETED_MS)


def test_the_list_has_a_row_for_each_topic_with_times_in_utc() -> None:
    rows = [deleted.row_of(topic) for topic in (OLD, NEW)]
    assert json.loads(as_text(Listing(rows, ""), "json")) == [
        {
            "name": "orders",
            "topic_id": "AAECAwQFBgcICQoLDA0ODw",
            "partitions": 3,
            "size_bytes": 1_234_567,
            "deleted_at": "2023-11-14T22:13:20.000Z",
            "gone_at": "2023-11-14T23:13:20.000Z",
        },
        {
            "name": "orders",
            "topic_id": "AQIDBAUGBwgJCgsMDQ4PEA",
            "partitions": 12,
            "size_bytes": 0,
            "deleted_at": "2023-11-14T22:13:21.000Z",
            "gone_at": "never",
        },
    ]


def test_without_an_id_the_topic_deleted_last_is_meant() -> None:
    assert deleted.choose([OLD, OTHER, NEW], "orders", None) is NEW
    assert deleted.choose([OLD, OTHER, NEW], "orders", OLD.topic_id) is OLD


@pytest.mark.parametrize(
    ("name", "topic_id", "error_text"),
    [
        ("order", None, "no deleted topic 'order' can come back"),
        ("orders", OTHER.topic_id, "has that id; the known ids are AAECAwQFBgcICQoLDA0ODw, AQIDBAUGBwgJCgsMDQ4PEA"),
    ],
)
def test_the_error_for_a_missing_topic_names_it_and_the_known_ids(
    name: str, topic_id: bytes | None, error_text: str
) -> None:
    with pytest.raises(Invalid, match=error_text):
        deleted.choose([OLD, OTHER, NEW], name, topic_id)


def test_ids_are_written_as_kafka_writes_them() -> None:
    for view in (OLD, NEW, OTHER):
        assert deleted.parse_topic_id(topic_id_text(view.topic_id)) == view.topic_id


@pytest.mark.parametrize("text", ["", "orders", "AAECAwQFBgcICQoLDA0OD", "AAECAwQFBgcICQoLDA0OD!", "A" * 23, "ä" * 22])
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(Invalid, match="not a topic id"):
        deleted.parse_topic_id(text)


@pytest.mark.parametrize(
    ("argv", "error_text"),
    [
        (["deleted", "--data", "/nowhere"], "no `penstock up` has run in /nowhere"),
        (["undelete", "t", "--data", "/nowhere"], "no `penstock up` has run in /nowhere"),
        (["undelete", "a/b", "--data", "/nowhere"], "a topic name is 1 to 249 letters"),
        (["undelete", "t", "--id", "x", "--data", "/nowhere"], "not a topic id: 'x'"),
    ],
)
def test_an_impossible_request_prints_one_sentence_and_returns_1(
    argv: list[str], error_text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_NATS_URL", raising=False)
    assert main(["topic", *argv]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"penstock: {error_text}") and printed.err.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["undelete"], ["remove"], ["deleted", "--store", "file:///s"]])
def test_invalid_flags_end_with_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topic", *argv])
    assert ended.value.code == 2
    assert "usage: penstock" in capsys.readouterr().err


def test_the_id_may_begin_with_a_dash() -> None:
    arguments = parse_arguments(["topic", "undelete", "t", "--id=-AECAwQFBgcICQoLDA0ODw"])
    assert arguments.id.startswith("-")
