"""`penstock topic`: its list, the choice of the topic to bring back, and its error texts."""

import argparse
import json
import re

import pytest

from penstock.cli import main, topic
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import topic_id_text
from penstock.contracts.queries.topics import DeletedTopicView

DELETED_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
OLD = DeletedTopicView("orders", bytes(range(16)), 3, 1_234_567, DELETED_MS, DELETED_MS + 3_600_000)
NEW = DeletedTopicView("orders", bytes(range(1, 17)), 12, 0, DELETED_MS + 1_000, 2**63 - 1)
OTHER = DeletedTopicView("payments-by-country", b"\xff" * 16, 1, 5, DELETED_MS, DELETED_MS)


def test_the_table_has_a_line_for_each_topic_with_times_in_utc() -> None:
    heading, *lines = [re.split(r"  +", line) for line in topic.as_table([OLD, NEW, OTHER]).splitlines()]
    assert heading == ["NAME", "ID", "PARTITIONS", "BYTES", "DELETED", "GONE AT"]
    assert lines == [
        ["orders", "AAECAwQFBgcICQoLDA0ODw", "3", "1,234,567", "2023-11-14 22:13:20Z", "2023-11-14 23:13:20Z"],
        ["orders", "AQIDBAUGBwgJCgsMDQ4PEA", "12", "0", "2023-11-14 22:13:21Z", "never"],
        ["payments-by-country", topic_id_text(b"\xff" * 16), "1", "5", "2023-11-14 22:13:20Z", "2023-11-14 22:13:20Z"],
    ]


def test_an_empty_list_is_a_sentence() -> None:
    assert topic.as_table([]) == "no deleted topic can come back"


def test_json_has_plain_numbers() -> None:
    assert json.loads(topic.as_json([OLD])) == [
        {
            "name": "orders",
            "id": "AAECAwQFBgcICQoLDA0ODw",
            "partitions": 3,
            "bytes": 1_234_567,
            "deleted_ms": DELETED_MS,
            "until_ms": DELETED_MS + 3_600_000,
        }
    ]


def test_without_an_id_the_topic_deleted_last_is_meant() -> None:
    assert topic.choose([OLD, OTHER, NEW], "orders", None) is NEW
    assert topic.choose([OLD, OTHER, NEW], "orders", OLD.topic_id) is OLD


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
        topic.choose([OLD, OTHER, NEW], name, topic_id)


def test_ids_are_written_as_kafka_writes_them() -> None:
    for view in (OLD, NEW, OTHER):
        assert topic.parse_topic_id(topic_id_text(view.topic_id)) == view.topic_id


@pytest.mark.parametrize("text", ["", "orders", "AAECAwQFBgcICQoLDA0OD", "AAECAwQFBgcICQoLDA0OD!", "A" * 23, "ä" * 22])
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(Invalid, match="not a topic id"):
        topic.parse_topic_id(text)


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
    parser = argparse.ArgumentParser()
    topic.add_parser(parser.add_subparsers())
    assert parser.parse_args(["topic", "undelete", "t", "--id=-AECAwQFBgcICQoLDA0ODw"]).id.startswith("-")
