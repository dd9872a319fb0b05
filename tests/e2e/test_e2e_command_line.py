"""The command line against a real cluster: topics, records, groups, transactions, and secured listeners."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.cli.running import INTERRUPTED_EXIT_CODE
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.commands import TIMEOUT_S, error_of, penstock, run, values
from tests.testkit.servers.schema_registry import framed, serving

pytestmark = pytest.mark.e2e

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("command-line") / "data") as started:
        yield started


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A new topic with three partitions."""
    name = f"topic-{next(NUMBERS)}"
    penstock(cluster, "topic", "create", name, "-p", "3")
    return name


def test_topics_are_created_listed_described_altered_and_deleted(cluster: Cluster) -> None:
    created = values(cluster, "topic", "create", "orders", "-p", "2", "-c", "retention.ms=86400000")
    assert created == [{"name": "orders", "partitions": 2, "result": "created"}]
    assert error_of(cluster, "topic", "create", "orders").startswith("topic 'orders' is not created: ")
    assert values(cluster, "topic", "create", "orders", "--if-not-exists")[0]["result"] == "exists already"

    preview = ("topic", "alter", "orders", "-p", "5", "--set", "retention.ms=1000", "--unset", "cleanup.policy")
    expected = [
        {"name": "partitions", "before": "2", "after": "5"},
        {"name": "retention.ms", "before": "86400000", "after": "1000"},
    ]
    assert values(cluster, *preview, "--dry-run")[:2] == expected
    assert len(values(cluster, "topic", "describe", "orders")["partitions"]) == 2
    assert values(cluster, *preview)[:2] == expected
    described = values(cluster, "topic", "describe", "orders")
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3, 4]
    assert described["configs"] == [{"name": "retention.ms", "value": "1000", "source": "dynamic topic config"}]
    assert "retention.msx is not a supported" in error_of(
        cluster, "topic", "alter", "orders", "--set", "retention.msx=1"
    )

    assert values(cluster, "topic", "list", "ord*", "--detail") == [
        {"name": "orders", "partitions": 5, "records": 0, "size_bytes": 0}
    ]
    assert error_of(cluster, "topic", "delete", "orders") == "Delete orders with 0 records? Confirm it with --yes"
    assert values(cluster, "topic", "delete", "orders", "--yes") == [{"name": "orders", "result": "deleted"}]
    assert values(cluster, "topic", "list", "orders") == []
    assert error_of(cluster, "topic", "describe", "orders").startswith("there is no topic 'orders', or you may ")


def test_records_go_through_a_pipe_and_back(cluster: Cluster, topic: str) -> None:
    """The JSON that `consume` prints makes the same records in another topic; filters and positions choose records."""
    lines = b"".join(b'{"key": "k%d", "value": {"price": %d}}\n' % (number % 7, number) for number in range(300))
    assert penstock(cluster, "topic", "produce", topic, "--json", text=lines).startswith("300 records written")
    printed = penstock(cluster, "topic", "consume", topic, "-o", "json")
    records = [json.loads(line) for line in printed.splitlines()]
    assert sorted(json.loads(record["value"])["price"] for record in records) == list(range(300))

    copied = f"{topic}-copy"
    penstock(cluster, "topic", "create", copied, "-p", "3")
    penstock(cluster, "topic", "produce", copied, "--json", "--compression", "zstd", text=printed.encode())
    copies = [json.loads(line) for line in penstock(cluster, "topic", "consume", copied, "-o", "json").splitlines()]
    # Stock clients give a key the same partition, and so does this command.
    assert sorted((each["partition"], each["key"], each["value"]) for each in copies) == sorted(
        (each["partition"], each["key"], each["value"]) for each in records
    )

    chosen = penstock(cluster, "topic", "consume", topic, "-o", "raw", "--filter", "value.price >= `298` && key != 'x'")
    assert sorted(chosen.splitlines()) == ['{"price": 298}', '{"price": 299}']
    last = penstock(cluster, "topic", "consume", f"{topic}/0", "--from=-1", "-o", "json")
    ends = {
        each["partition"]: each["latest_offset"] for each in values(cluster, "topic", "describe", topic)["partitions"]
    }
    assert json.loads(last)["offset"] == ends[0] - 1
    assert len(penstock(cluster, "topic", "consume", topic, "-n", "10").splitlines()) == 10
    assert penstock(cluster, "topic", "consume", topic, "--from", "2100-01-01") == ""
    assert penstock(cluster, "topic", "consume", topic, "--from", "1h", "--to", "5m") == ""
    stats = run("topic", "consume", topic, "--stats", "--bootstrap", cluster.kafka)
    assert stats.stderr.startswith(b"300 records, ")


def test_records_of_a_schema_registry_are_decoded(cluster: Cluster, topic: str) -> None:
    """A real client writes Avro; filters see its fields, and a record without a schema does not stop the reading."""
    schema = {"type": "record", "name": "shop.Order", "fields": [{"name": "price", "type": "long"}]}
    with serving() as registry:
        registry.login = "alice:secret"
        schema_id = registry.register(f"{topic}-value", schema)
        producer = Producer({"bootstrap.servers": cluster.kafka})
        for price in range(30):
            payload = io.BytesIO()
            fastavro.schemaless_writer(payload, fastavro.parse_schema(schema), {"price": price})
            producer.produce(topic, framed(schema_id, payload.getvalue()), b"k", partition=0)
        producer.produce(topic, framed(999, b"x"), partition=0)
        producer.produce(topic, b"plain", partition=0)
        assert producer.flush(TIMEOUT_S) == 0

        flag = f"--schema-registry={registry.url.replace('//', '//alice:secret@')}"
        lines = penstock(cluster, "topic", "consume", topic, "-o", "json", flag).splitlines()
        records = [json.loads(line) for line in lines]
        assert [each["value"] for each in records[:30]] == [{"price": price} for price in range(30)]
        assert records[0]["value_schema"] == {"id": schema_id, "type": "AVRO", "name": "shop.Order"}
        assert records[30]["value_error"] == "schema 999: the registry has no schema of this id"
        assert records[31]["value"] == "plain"
        chosen = penstock(cluster, "topic", "consume", topic, "-o", "raw", flag, "--filter", "value.price > `27`")
        assert chosen.splitlines() == ['{"price": 28}', '{"price": 29}']

        registry.login = "alice:another"
        refused = run("topic", "consume", topic, flag, "--bootstrap", cluster.kafka)
        assert refused.returncode == 1 and len(refused.stdout.splitlines()) == 32
        reason = f"{topic}/0@0: schema {schema_id}: {registry.url} refuses the login: HTTP 401"
        expected = f"penstock: 31 of 32 records could not be decoded; the first is {reason}\n"
        assert refused.stderr.decode() == expected


def test_tail_prints_new_records_only(cluster: Cluster, topic: str) -> None:
    penstock(cluster, "topic", "produce", topic, "--value", "old")
    command = [sys.executable, "-m", "penstock.cli", "topic", "tail", topic, "-n", "2", "-o", "raw"]
    with subprocess.Popen([*command, "--bootstrap", cluster.kafka], stdout=subprocess.PIPE) as tail:
        sent = 0

        def is_ended() -> bool:
            nonlocal sent
            sent += 1
            penstock(cluster, "topic", "produce", topic, "--value", f"new {sent}")
            return tail.poll() is not None

        wait_until(is_ended, TIMEOUT_S, "two new records")
        assert tail.stdout is not None
        assert all(line.startswith(b"new ") for line in tail.stdout.read().splitlines())


def test_the_oldest_records_are_deleted(cluster: Cluster, topic: str) -> None:
    penstock(cluster, "topic", "produce", f"{topic}/1", "--file", "/dev/stdin", text=b"x\n" * 10)
    expected = [{"partition": 1, "before_offset": 0, "after_offset": 4, "records": 4}]
    assert values(cluster, "topic", "trim", f"{topic}/1", "--to", "4", "--dry-run") == expected
    assert values(cluster, "topic", "trim", f"{topic}/1", "--to", "4", "--yes") == expected
    (found,) = (each for each in values(cluster, "topic", "describe", topic)["partitions"] if each["partition"] == 1)
    assert (found["earliest_offset"], found["latest_offset"]) == (4, 10)
    assert error_of(cluster, "topic", "trim", f"{topic}/9", "--to", "4").endswith("has no partition 9, but 3 from 0")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_and_moved(cluster: Cluster, topic: str, protocol: str) -> None:
    name = f"{topic}-{protocol}"
    for partition in range(3):  # a producer without keys may use one partition only
        penstock(cluster, "topic", "produce", f"{topic}/{partition}", "--file", "/dev/stdin", text=b"x\n" * 10)
    ends = [each["latest_offset"] for each in values(cluster, "topic", "describe", topic)["partitions"]]
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka,
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "client.id": "reader",
        }
    )
    consumer.subscribe([topic])
    left = {"records": sum(ends)}

    def has_read_all() -> bool:
        message = consumer.poll(0.5)
        left["records"] -= message is not None and message.error() is None
        return not left["records"]

    wait_until(has_read_all, TIMEOUT_S, "all records")
    consumer.commit(asynchronous=False)
    described = values(cluster, "group", "describe", name)
    assert (described["type"], described["state"]) == (protocol, "Stable")
    assert [(each["client_id"], each["partitions"]) for each in described["members"]] == [("reader", [f"{topic}/0-2"])]
    lags = values(cluster, "group", "lag", name)
    assert {each["member"] for each in lags} == {"reader@127.0.0.1"}
    assert [each["lag"] for each in lags] == [0, 0, 0]
    busy = error_of(cluster, "group", "reset", name, "--to", "earliest", "--yes")
    assert busy == f"group {name!r} is Stable with 1 members: stop them first"
    consumer.close()  # it waits at most 5 s for the answer to its leave
    wait_until(lambda: values(cluster, "group", "describe", name)["state"] == "Empty", TIMEOUT_S, "an empty group")

    before = [each["before_offset"] for each in values(cluster, "group", "reset", name, "--to=-2", "--dry-run")]
    assert before == ends
    penstock(cluster, "group", "reset", name, "--to=-2", "--yes")
    moved = [max(end - 2, 0) for end in ends]
    lags = values(cluster, "group", "lag", name)
    assert [each["committed_offset"] for each in lags] == moved
    assert [each["lag"] for each in lags] == [end - offset for end, offset in zip(ends, moved, strict=True)]
    assert all(0 < each["behind_seconds"] < TIMEOUT_S * 5 for each in lags if each["lag"])
    (summed,) = values(cluster, "group", "lag", name, "--by", "group")
    assert summed["lag"] == sum(each["lag"] for each in lags)

    penstock(cluster, "group", "seek", name, f"{topic}/0@1", "--yes")
    assert values(cluster, "group", "lag", name)[0]["committed_offset"] == 1
    assert f"{topic}/0 has offsets 0 to " in error_of(cluster, "group", "seek", name, f"{topic}/0@999", "--yes")
    penstock(cluster, "group", "seek", f"{name}-2", "--like", name, "--yes")
    copied = [each["committed_offset"] for each in values(cluster, "group", "lag", f"{name}-2")]
    assert copied == [1, *moved[1:]]

    assert values(cluster, "group", "delete", name, "--topic", topic, "--yes")[0]["partitions"] == 3
    assert values(cluster, "group", "lag", name) == []
    penstock(cluster, "group", "delete", name, f"{name}-2", "--yes")
    assert values(cluster, "group", "list", f"{name}*") == []
    assert error_of(cluster, "group", "describe", name).startswith(f"there is no group {name!r}")


def test_a_transaction_is_described_and_aborted(cluster: Cluster, topic: str) -> None:
    name = f"{topic}-writer"
    # The commands before `txn abort` may take longer than the default of 60 s.
    producer = Producer(
        {"bootstrap.servers": cluster.kafka, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=2)
    assert producer.flush(TIMEOUT_S) == 0
    (listed,) = values(cluster, "txn", "list", "--state", "Ongoing")
    assert listed["transactional_id"] == name
    described = values(cluster, "txn", "describe", name)
    assert (described["state"], described["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 2}])
    assert values(cluster, "txn", "list", "--hanging") == []  # it is younger than its time-out
    (found,) = values(cluster, "producer", "list", f"{topic}/2")
    assert (found["producer_id"], found["open_transaction_offset"]) == (described["producer_id"], 0)
    assert penstock(cluster, "topic", "consume", topic) == ""
    assert "open" in penstock(cluster, "topic", "consume", topic, "--uncommitted")

    assert penstock(cluster, "txn", "abort", name, "--yes") == f"the transaction of {name} is aborted\n"
    assert error_of(cluster, "txn", "abort", name, "--yes").startswith(f"the transaction of {name!r} is not open")
    assert error_of(cluster, "txn", "describe", "unknown").startswith("there is no transactional id 'unknown'")


def test_the_cluster_and_its_processes_are_described(cluster: Cluster) -> None:
    info = values(cluster, "cluster", "info")
    assert [each["address"] for each in info["gateways"]] == [cluster.kafka]
    assert {"name": "transaction.version", "minimum": 0, "maximum": 2, "in_use": 2} in values(
        cluster, "cluster", "features"
    )
    assert values(cluster, "cluster", "config", "message.max")[0]["name"] == "message.max.bytes"

    def status() -> dict[str, Any]:
        """The roles; none while an announcement or an answer of a process is late."""
        done = run("status", "--data", str(cluster.data), "-o", "json")
        assert done.stderr == b""
        found = {each["service"]: each for each in json.loads(done.stdout)}
        is_whole = done.returncode == 0 and found.keys() >= {"gateway", "flusher", "sequencer", "cacher"}
        return found if is_whole and all(each["ready"] and not each["problem"] for each in found.values()) else {}

    found = wait_until(status, TIMEOUT_S, "each role to be ready")
    assert found["gateway"]["kafka"] == [cluster.kafka]


def test_an_output_that_is_closed_early_is_no_error(cluster: Cluster, topic: str) -> None:
    penstock(cluster, "topic", "produce", topic, "--file", "/dev/stdin", text=b"x" * 500 + b"\n")
    penstock(cluster, "topic", "produce", topic, "--file", "/dev/stdin", text=(b"x" * 500 + b"\n") * 2_000)
    command = f"{sys.executable} -m penstock.cli topic consume {topic} --bootstrap {cluster.kafka} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_a_secured_listener_needs_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of `up --secure` are enough, as a flag or as a profile; other errors name the setting to change."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with running(tmp_path / "data", "--secure") as secured:
        folder = secured.data / "secure"
        properties = ("--command-config", str(folder / "client.properties"))
        penstock(secured, "topic", "create", "private", *properties)
        profile = ("profile", "create", "own", "--command-config", str(folder / "librdkafka.conf"))
        assert run(*profile).returncode == 0
        assert b"private" in run("topic", "list").stdout  # with the current profile

        assert error_of(secured, "topic", "list").startswith(f"the listener {secured.kafka} uses TLS: ")
        wrong = tmp_path / "wrong"
        wrong.write_text((folder / "librdkafka.conf").read_text().replace("sasl.password=", "sasl.password=x"))
        refused = error_of(secured, "topic", "list", "--command-config", str(wrong))
        assert refused == f"{secured.kafka} refuses the login of 'admin': check user, password and mechanism"
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "127.0.0.1:1")
        assert b"no gateway accepts a connection (127.0.0.1:1: Connection refused)" in run("topic", "list").stderr


def test_the_offsets_of_a_consumer_are_found_by_time(cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka})
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 60_000)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": f"{topic}-timed"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    moved = values(cluster, "group", "reset", f"{topic}-timed", "--to", "2023-11-14T22:16:20Z", "--yes")
    assert [(each["before_offset"], each["after_offset"]) for each in moved] == [(0, 3)]


def test_the_life_of_a_record_is_explained(cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(topic, b"%d" % number, b"key", partition=1, headers={"h": b"x"})
    producer.commit_transaction(TIMEOUT_S)
    (found,) = values(cluster, "producer", "list", f"{topic}/1")

    def explained(place: str) -> dict[str, Any]:
        done = run("explain", place, "--data", str(cluster.data), "-o", "json")
        assert (done.returncode, done.stderr) == (0, b"")
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    life = explained(f"{topic}/1@3")
    assert (life["kind"], life["state"], life["transaction"]) == ("record", "committed", "committed or open")
    assert (life["producer_id"], life["sequence"]) == (found["producer_id"], 3)
    assert (life["key_bytes"], life["value_bytes"], life["headers"]) == (3, 1, 1)
    assert (cluster.data / "objects" / life["object"]).stat().st_size == life["segment_size_bytes"]
    assert life["level"] == 0 and life["flusher"] and int(life["journal_entry"]) > 0
    assert 0 <= life["segment_to_commit_ms"] < TIMEOUT_S * 1000 and 0 < life["puts_of_its_batch"] <= 1
    marker = explained(f"{topic}/1@5")
    assert (marker["kind"], marker["producer_id"]) == ("marker of a committed transaction", found["producer_id"])
    beyond = run("explain", f"{topic}/1@99", "--data", str(cluster.data))
    assert beyond.stderr == b"penstock: there is no record at 99 yet: the next one gets offset 6\n"


def test_the_latency_of_a_load_is_explained(cluster: Cluster, topic: str) -> None:
    command = [sys.executable, "-m", "penstock.cli", "explain", "latency", "--seconds", "5", "-o", "json"]
    with subprocess.Popen([*command, "--data", str(cluster.data)], stdout=subprocess.PIPE) as measuring:
        producer = Producer({"bootstrap.servers": cluster.kafka})

        def is_measured() -> bool:
            producer.produce(topic, b"x")
            assert producer.flush(TIMEOUT_S) == 0
            return measuring.poll() is not None

        wait_until(is_measured, TIMEOUT_S, "the end of the measurement")
        assert measuring.stdout is not None
        found = json.loads(measuring.stdout.read())
    stages = {each["stage"]: each for each in found["stages"]}
    assert {"flusher: upload", "flusher: commit", "gateway: whole produce request"} <= stages.keys()
    assert all(each["count"] > 0 and each["mean_ms"] >= 0 for each in stages.values())
    assert found["advice"]


def test_a_measurement_shows_times_and_leaves_nothing(cluster: Cluster) -> None:
    found = values(cluster, "bench", "--rate", "50", "--seconds", "2", "-p", "2")
    acknowledged, received = found["times"]
    assert found["records"] == sum(each["count"] for each in found["acknowledged"]) > 50
    assert sum(each["count"] for each in found["received"]) == found["records"]
    assert 0 < acknowledged["p50_ms"] <= acknowledged["p99_ms"] <= acknowledged["max_ms"]
    assert received["to"] == "received" and received["max_ms"] < TIMEOUT_S * 1000
    assert values(cluster, "topic", "list", "penstock-bench-*") == []
    assert error_of(cluster, "bench", "--rate", "0").startswith("--rate is 1 to ")


def _take_interrupts() -> None:
    """As at a terminal. A shell starts processes in the background with SIGINT ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_measurement_ends_soon_and_leaves_nothing(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "penstock.cli", "bench", "--seconds", "600", "--bootstrap", cluster.kafka]
    with subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=_take_interrupts) as measuring:
        try:
            wait_until(
                lambda: any(
                    each["records"] for each in values(cluster, "topic", "list", "penstock-bench-*", "--detail")
                ),
                TIMEOUT_S,
                "records",
            )
            measuring.send_signal(signal.SIGINT)
            assert measuring.wait(TIMEOUT_S) == INTERRUPTED_EXIT_CODE
        finally:
            measuring.kill()
    assert values(cluster, "topic", "list", "penstock-bench-*") == []


def test_the_doctor_finds_a_healthy_cluster_and_packs_a_bundle(cluster: Cluster, tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    done = run("doctor", "--data", str(cluster.data), "--kafka", cluster.kafka, "--bundle", str(bundle), "-o", "json")
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert [each for each in found.values() if each["mark"] == "error"] == []
    assert (done.returncode, done.stderr) == (0, b"")
    assert {"nats", "journal", "clock", "store: put only if absent", "port --kafka"} <= found.keys()
    assert found["compactors"]["mark"] == "warning"  # this cluster has none
    assert any(name.startswith("address of ") for name in found)
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
    assert any("/metrics/" in name for name in names) and any("/logs/" in name for name in names)
    stopped = run("doctor", "--data", str(tmp_path / "nowhere"), "-o", "json")
    assert stopped.returncode == 0 and b"not checked: no `penstock up` has run in" in stopped.stdout


@pytest.mark.parametrize("words", ["topic describe topic-", "topic consume topic-", "group describe grou"])
def test_a_shell_completes_names(cluster: Cluster, topic: str, tmp_path: Path, words: str) -> None:
    group = f"group-of-{topic}"
    penstock(cluster, "group", "reset", group, "--to", "earliest", "--topic", topic, "--yes")
    line = f"penstock {words}"
    given = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "PENSTOCK_BOOTSTRAP": cluster.kafka}
    completed = tmp_path / "words"
    environ = os.environ | given | {"_ARGCOMPLETE_STDOUT_FILENAME": str(completed)}

    def is_completed() -> bool:
        """A busy cluster may not answer within the time that a user waits for a completion."""
        completed.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "penstock.cli"], env=environ, timeout=TIMEOUT_S, check=False)
        return (topic if "topic" in words else group) in completed.read_text().split()

    wait_until(is_completed, TIMEOUT_S, "the completion")
