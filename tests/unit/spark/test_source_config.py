"""The options of `spark.read.format("penstock")`: valid values, and one sentence for each invalid value."""

import re
from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid
from penstock.spark.source.config import COLUMNS, SourceConfig, read_source_config

ADDRESS = {"nats": "nats://a:1", "store": "file:///objects"}


def read(streaming: bool = False, environ: dict[str, str] | None = None, **options: str) -> SourceConfig:
    return read_source_config({**ADDRESS, **options}, streaming=streaming, environ=environ or {})


def test_a_text_that_is_no_legal_topic_name_is_a_pattern() -> None:
    topics = read(topics=" a.b , c-1,b.*,[xy]z ").topics
    assert topics.names == ("a.b", "c-1")
    assert topics.patterns == ("b.*", "[xy]z")
    assert [name for name in ("a.b", "axb", "c-1", "banana", "xz", "xzz") if topics.matches(name)] == [
        "a.b",
        "c-1",
        "banana",
        "xz",
    ]


def test_the_case_of_option_names_does_not_matter() -> None:
    config = read(TOPICS="t", startingoffsets="LATEST", MaxBytesPerTrigger="5000000")
    assert config.starting == "latest"
    assert config.trigger_bytes == 5_000_000


def test_a_query_fails_at_lost_offsets_and_corrupt_batches_unless_its_options_say_otherwise() -> None:
    config = read(topics="t")
    assert (config.fail_on_data_loss, config.fail_on_corrupt_batch) == (True, True)
    config = read(topics="t", failOnDataLoss="false", failOnCorruptBatch="False")
    assert (config.fail_on_data_loss, config.fail_on_corrupt_batch) == (False, False)


def test_a_stream_begins_at_the_latest_and_a_batch_at_the_earliest_offset() -> None:
    assert read(topics="t", streaming=True).starting == "latest"
    assert read(topics="t").starting == "earliest"


def test_columns_come_in_the_order_of_the_table() -> None:
    assert read(topics="t", columns="value, offset").columns == ("offset", "value")
    assert read(topics="t").columns == COLUMNS


def test_the_environment_and_the_env_file_name_the_cluster_where_options_do_not(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("PENSTOCK_STORE_URL=s3://b\nAWS_ACCESS_KEY_ID=k\nAWS_SECRET_ACCESS_KEY=s\nPENSTOCK_CLUSTER=file\n")
    environ = {"PENSTOCK_NATS_URL": "nats://env", "PENSTOCK_ENV_FILE": str(path), "PENSTOCK_CLUSTER": "blue"}
    address = read_source_config({"topics": "t"}, environ=environ).address
    assert (address.nats_url, address.cluster) == ("nats://env", "blue")
    assert address.store_url == "s3://b?access_key=k&secret_key=s"
    assert "secret" not in repr(address)
    assert "secret" not in repr(SourceConfig(address=address, topics=read(topics="t").topics))


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({}, "no topics are named"),
        ({"topics": "t", "topic": "t"}, "no option 'topic'"),
        ({"topics": "(["}, "an invalid pattern"),
        ({"topics": "t", "columns": "offset,size"}, "no column 'size'"),
        ({"topics": "t", "isolation": "serializable"}, "isolation must be"),
        ({"topics": "t", "startingOffsets": "yesterday"}, "startingOffsets must be earliest, latest, or JSON"),
        ({"topics": "t", "startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets must be earliest"),
        ({"topics": "t", "startingOffsets": "{}", "startingTimestamp": "1"}, "exclude each other"),
        ({"topics": "t", "startingTimestamp": "noon"}, "startingTimestamp must be a whole number"),
        ({"topics": "t", "maxBytesPerSplit": "1"}, "maxBytesPerSplit must be a whole number, at least 1048576"),
        ({"topics": "t", "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"topics": "t", "failOnCorruptBatch": "skip"}, "failOnCorruptBatch must be true or false"),
        ({"topics": "t", "nats": ""}, "no cluster is named: give the option nats"),
        ({"topics": "t", "cluster": "a.b"}, "cluster must be"),
    ],
)
def test_an_invalid_option_is_reported_in_one_sentence(options: dict[str, str], error_text: str) -> None:
    with pytest.raises(Invalid, match=re.escape(error_text)):
        read(**options)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(Invalid, match="a stream has no end"):
        read(topics="t", streaming=True, endingOffsets="latest")
