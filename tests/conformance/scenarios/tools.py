"""Kafka's command-line tools, used as in their manual."""

import json
import re
import time

from confluent_kafka import Producer

from tests.conformance.scenario import TIMEOUT_S, Scenario, Stage, until
from tests.conformance.scenarios.producing import create_topic, fill
from tests.conformance.scenarios.transactions import read_committed
from tests.testkit.loads.ledger import QUIET

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
COUNT = 30


def has(output: str, *patterns: str) -> None:
    """Assert that a tool's output matches each of the patterns."""
    for pattern in patterns:
        assert re.search(pattern, output, re.MULTILINE), f"no {pattern!r} in {output!r}"


def topics(stage: Stage) -> None:
    """kafka-topics: --create, --list, --describe, --alter, --delete."""
    topic = stage.name("topic")
    create = ["--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=86400000"]
    has(stage.tool(TOPICS, *create), "Created topic")
    has(stage.tool(TOPICS, "--list"), f"^{topic}$")
    has(stage.tool(TOPICS, "--describe", "--topic", topic), r"PartitionCount: 2\b.*retention.ms=86400000")
    stage.tool(TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    has(stage.tool(TOPICS, "--describe", "--topic", topic), r"PartitionCount: 4\b")
    has(stage.tool(TOPICS, *create, "--if-not-exists"), "")
    stage.tool(TOPICS, "--delete", "--topic", topic)
    until(lambda: topic not in stage.tool(TOPICS, "--list").split(), "the topic to disappear")


def configs(stage: Stage) -> None:
    """kafka-configs: configurations of topics and of one broker are altered and described."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 1)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    stage.tool(CONFIGS, *entity, "--alter", "--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
    stage.tool(CONFIGS, *entity, "--alter", "--add-config", "compression.type=zstd,compression.zstd.level=5")
    has(
        stage.tool(CONFIGS, *entity, "--describe"),
        "max.message.bytes=2000 ",
        "cleanup.policy=compact,delete ",
        "compression.type=zstd ",
        "compression.zstd.level=5 ",
    )
    stage.tool(CONFIGS, *entity, "--alter", "--delete-config", "max.message.bytes")
    has(stage.tool(CONFIGS, *entity, "--describe", "--all"), "max.message.bytes=1048588 ", "retention.ms=604800000 ")
    has(stage.tool(CONFIGS, "--entity-type", "brokers", "--entity-default", "--describe"), "Default configs")
    broker = ["--entity-type", "brokers", "--entity-name", brokers_of(stage)[0]]
    stage.tool(CONFIGS, *broker, "--alter", "--add-config", "background.threads=9")
    has(stage.tool(CONFIGS, *broker, "--describe"), "background.threads=9 .*DYNAMIC_BROKER_CONFIG:background.threads=9")
    stage.tool(CONFIGS, *broker, "--alter", "--delete-config", "background.threads")
    assert "background.threads" not in stage.tool(CONFIGS, *broker, "--describe")
    stage.tool(CONFIGS, *broker, "--alter", "--add-config", "num.partitions=3", fails=True)  # a static one


def brokers_of(stage: Stage) -> list[str]:
    """The ids of the brokers."""
    return re.findall(r"\(id: (\d+) ", stage.tool("org.apache.kafka.tools.BrokerApiVersionsCommand"))


def quotas(stage: Stage) -> None:
    """kafka-configs: quotas of users are set, described and removed."""
    user = ["--entity-type", "users", "--entity-name", stage.name("user")]
    stage.tool(CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=100000,consumer_byte_rate=200000")
    has(stage.tool(CONFIGS, *user, "--describe"), "producer_byte_rate=100000.0", "consumer_byte_rate=200000.0")
    stage.tool(CONFIGS, *user, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert "byte_rate" not in stage.tool(CONFIGS, *user, "--describe")


def client_metrics(stage: Stage) -> None:
    """kafka-client-metrics, -configs: subscriptions to metrics of clients are set, listed, described and deleted."""
    name = stage.name("metrics")
    wanted = ["--metrics", "org.apache.kafka.producer.", "--interval", "60000", "--match", "client_id=a.*"]
    has(stage.tool(CLIENT_METRICS, "--alter", "--name", name, *wanted), "Altered client metrics config")
    has(stage.tool(CLIENT_METRICS, "--list"), f"^{name}$")
    shown = stage.tool(CLIENT_METRICS, "--describe", "--name", name)
    has(shown, "interval.ms=60000", "match=client_id=a", "metrics=org.apache.kafka.producer.")
    entity = ["--entity-type", "client-metrics", "--entity-name", name]
    stage.tool(CONFIGS, *entity, "--alter", "--delete-config", "match,interval.ms")
    has(stage.tool(CONFIGS, *entity, "--describe", "--all"), "interval.ms=300000 ", "match= ")
    refused = stage.tool(CLIENT_METRICS, "--alter", "--name", name, "--interval", "99", fails=True)
    has(refused, "interval must be between 100 and 3600000")
    has(stage.tool(CLIENT_METRICS, "--delete", "--name", name), "Deleted client metrics config")
    assert name not in stage.tool(CLIENT_METRICS, "--list").split()


def passwords(stage: Stage) -> None:
    """kafka-configs: SCRAM passwords of users are set, described and deleted."""
    user = ["--entity-type", "users", "--entity-name", stage.name("user")]
    wanted = "SCRAM-SHA-256=[iterations=8192,password=secret-1],SCRAM-SHA-512=[password=secret-2]"
    has(stage.tool(CONFIGS, *user, "--alter", "--add-config", wanted), "Completed updating config")
    has(stage.tool(CONFIGS, *user, "--describe"), "SCRAM-SHA-256=iterations=8192", "SCRAM-SHA-512=iterations=4096")
    stage.tool(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    shown = stage.tool(CONFIGS, *user, "--describe")
    has(shown, "SCRAM-SHA-512=iterations=4096")
    assert "SCRAM-SHA-256" not in shown, shown
    stage.tool(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA" not in stage.tool(CONFIGS, *user, "--describe")


def access_control_lists(stage: Stage) -> None:
    """kafka-acls: --add, --list, --remove, also of prefixes and for producers and consumers."""
    topic, group, user = stage.name("topic"), stage.name("group"), stage.name("user")
    alice = ["--allow-principal", f"User:{user}"]
    has(stage.tool(ACLS, "--add", *alice, "--producer", "--topic", topic), f"name={topic}")
    stage.tool(ACLS, "--add", *alice, "--consumer", "--topic", topic, "--group", group)
    prefixed = ["--topic", topic[:-1], "--resource-pattern-type", "prefixed"]
    stage.tool(ACLS, "--add", "--deny-principal", "User:bob", "--operation", "Write", *prefixed)
    allowed = rf"\(principal=User:{user}, host=\*, operation=%s, permissionType=ALLOW\)"
    operations = [allowed % each for each in ("WRITE", "DESCRIBE", "CREATE", "READ")]
    has(stage.tool(ACLS, "--list", "--topic", topic), *operations)
    matched = stage.tool(ACLS, "--list", "--topic", topic, "--resource-pattern-type", "match")
    has(matched, *operations, "operation=WRITE, permissionType=DENY")
    has(stage.tool(ACLS, "--list", "--group", group), allowed % "READ")
    stage.tool(ACLS, "--remove", *alice, "--operation", "Write", "--topic", topic, "--force")
    left = stage.tool(ACLS, "--list", "--topic", topic)
    assert "operation=WRITE" not in left, left
    for resource in (["--topic", topic], ["--group", group], prefixed):
        stage.tool(ACLS, "--remove", *resource, "--force")
    listed = stage.tool(ACLS, "--list")
    assert topic[:-1] not in listed, listed


def console(stage: Stage) -> None:
    """kafka-console-producer, -consumer: the consumer prints the records, from the beginning or from an offset."""
    topic = stage.name("topic")
    lines = "".join(f"key {number}:value {number}\n" for number in range(COUNT))
    keys = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    stage.tool(CONSOLE_PRODUCER, "--topic", topic, *keys, given=lines)
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"]
    read = ["--topic", topic, "--from-beginning", "--max-messages", str(COUNT), "--timeout-ms", "60000"]
    output = stage.tool(CONSOLE_CONSUMER, *read, *shown, "--group", stage.name("group"))
    assert output == lines, output
    within = ["--topic", topic, "--partition", "0", "--offset", "12", "--max-messages", "3", "--timeout-ms", "60000"]
    output = stage.tool(CONSOLE_CONSUMER, *within)
    assert output == "value 12\nvalue 13\nvalue 14\n", output


def consumer_groups(stage: Stage) -> None:
    """kafka-consumer-groups: --list, --describe, --reset-offsets, --delete-offsets, --delete."""
    topic, group = stage.name("topic"), stage.name("group")
    create_topic(stage.bootstrap, topic, 1)
    fill(stage.bootstrap, topic, 1, COUNT)
    stage.tool(CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", str(COUNT), "--group", group)
    has(stage.tool(GROUPS, "--list"), f"^{group}$")
    has(stage.tool(GROUPS, "--list", "--state"), rf"^{group}\s+Empty")
    has(stage.tool(GROUPS, "--describe", "--group", group), rf"{topic}\s+0\s+{COUNT}\s+{COUNT}\s+0\s")
    has(stage.tool(GROUPS, "--describe", "--group", group, "--state"), r"\bEmpty\b")
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "7", "--execute"]
    has(stage.tool(GROUPS, *reset), rf"{topic}\s+0\s+7")
    has(stage.tool(GROUPS, "--describe", "--group", group), rf"{topic}\s+0\s+7\s+{COUNT}\s+{COUNT - 7}\s")
    has(stage.tool(GROUPS, "--delete-offsets", "--group", group, "--topic", topic), "Successful")
    stage.tool(GROUPS, *reset)
    has(stage.tool(GROUPS, "--delete", "--group", group), "successful")
    assert group not in stage.tool(GROUPS, "--list").split()


def share_groups(stage: Stage) -> None:
    """kafka-share-groups, kafka-console-share-consumer, and kafka-configs of groups: the same for share groups."""
    topic, group = stage.name("topic"), stage.name("group")
    create_topic(stage.bootstrap, topic, 1)
    fill(stage.bootstrap, topic, 1, COUNT)
    entity = ["--entity-type", "groups", "--entity-name", group]
    stage.tool(CONFIGS, *entity, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    has(stage.tool(CONFIGS, *entity, "--describe"), "share.auto.offset.reset=earliest ")
    read = ["--topic", topic, "--group", group, "--max-messages", str(COUNT), "--timeout-ms", "60000"]
    output = stage.tool("org.apache.kafka.tools.consumer.ConsoleShareConsumer", *read)
    assert len(output.splitlines()) == COUNT, output
    has(stage.tool(SHARE_GROUPS, "--list"), f"^{group}$")
    has(stage.tool(SHARE_GROUPS, "--list", "--state"), rf"^{group}\s+Empty")
    described = ["--describe", "--group", group]
    has(stage.tool(SHARE_GROUPS, *described), rf"{group}\s+{topic}\s+0\s+{COUNT}\s+0\b")
    has(stage.tool(SHARE_GROUPS, *described, "--state"), rf"{group}\b.*\bEmpty\s+0\b")
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"]
    has(stage.tool(SHARE_GROUPS, *reset), rf"{topic}\s+0\s+0")
    has(stage.tool(SHARE_GROUPS, *described), rf"{group}\s+{topic}\s+0\s+0\s+{COUNT}\b")
    has(stage.tool(SHARE_GROUPS, "--delete-offsets", "--group", group, "--topic", topic), "Successful")
    stage.tool(SHARE_GROUPS, "--delete", "--group", group)
    assert group not in stage.tool(SHARE_GROUPS, "--list").split()


def performance(stage: Stage) -> None:
    """kafka-producer-perf-test, kafka-consumer-perf-test, kafka-e2e-latency: they report records and speed."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 1)
    load = ["--topic", topic, "--num-records", "2000", "--record-size", "200", "--throughput", "-1"]
    has(stage.tool("org.apache.kafka.tools.ProducerPerformance", *load), "^2000 records sent")
    read = ["--topic", topic, "--num-records", "2000", "--timeout", "60000"]
    has(stage.tool("org.apache.kafka.tools.ConsumerPerformance", *read), r"^\d{4}-.*, 2000, ")
    echo = ["--topic", stage.name("echoed"), "--num-records", "20", "--producer-acks", "all", "--record-size", "20"]
    has(stage.tool("org.apache.kafka.tools.EndToEndLatency", *echo), r"^Avg latency: \d", "^Percentiles: ")


def get_offsets(stage: Stage) -> None:
    """kafka-get-offsets: the earliest, the latest, the one of the largest timestamp, and the one of any time."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, topic, 2, COUNT)
    asked = ["--topic", topic, "--time"]
    tool = "org.apache.kafka.tools.GetOffsetShell"
    assert stage.tool(tool, *asked, "latest").split() == [f"{topic}:0:{COUNT}", f"{topic}:1:{COUNT}"]
    assert stage.tool(tool, *asked, "earliest").split() == [f"{topic}:0:0", f"{topic}:1:0"]
    assert stage.tool(tool, *asked, "max-timestamp").split() == [f"{topic}:0:{COUNT - 1}", f"{topic}:1:{COUNT - 1}"]
    start_ms = time.time_ns() // 1_000_000 - 1_000 * COUNT
    timed = stage.name("timed")
    producer = Producer({"bootstrap.servers": stage.bootstrap, **QUIET})
    for number in range(COUNT):
        producer.produce(timed, str(number), timestamp=start_ms + 1_000 * number)
    assert producer.flush(TIMEOUT_S) == 0
    for after_ms, offset in ((-5, 0), (5_000, 5), (5_001, 6)):
        output = stage.tool(tool, "--topic", timed, "--time", str(start_ms + after_ms))
        assert output.strip() == f"{timed}:0:{offset}", output


def log_dirs(stage: Stage) -> None:
    """kafka-log-dirs: every partition has a size."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, topic, 2, COUNT)
    output = stage.tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    (described,) = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    sizes = {
        partition["partition"]: partition["size"]
        for broker in described["brokers"]
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    }
    assert sorted(sizes) == [f"{topic}-0", f"{topic}-1"]
    assert all(size > 0 for size in sizes.values()), sizes


def transactions(stage: Stage) -> None:
    """kafka-transactions: list, describe and describe-producers show a transaction."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    source, target, identity = stage.name("source"), stage.name("target"), stage.name("id")
    copy(stage, source, target, identity)
    has(stage.tool(tool, "list"), rf"^{identity}\s+\S+\s+\S+\s+CompleteCommit")
    has(stage.tool(tool, "describe", "--transactional-id", identity), rf"{identity}\s.*CompleteCommit")
    has(stage.tool(tool, "describe-producers", "--topic", target, "--partition", "0"), r"^\d+\s+\d+\s")


def open_transaction(stage: Stage) -> None:
    """kafka-transactions: an open transaction is described and terminated, and its records are never read."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    topic, identity = stage.name("topic"), stage.name("id")
    create_topic(stage.bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": identity, **QUIET})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "never read", partition=0)
    producer.flush(TIMEOUT_S)
    has(stage.tool(tool, "describe", "--transactional-id", identity), rf"{identity}\s.*Ongoing.*{topic}-0")
    stage.tool(tool, "forceTerminateTransaction", "--transactionalId", identity)
    until(
        lambda: not re.search(rf"^{identity}\s.*(Ongoing|Prepare)", stage.tool(tool, "list"), re.MULTILINE),
        "the end of the transaction",
    )
    assert read_committed(stage.bootstrap, topic) == {0: [], 1: []}


def abort(stage: Stage) -> None:
    """kafka-transactions: none hangs, a pattern finds ids, and abort ends a transaction by one of its partitions."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    topic, identity = stage.name("topic"), stage.name("id")
    create_topic(stage.bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": identity, **QUIET})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, "never read", partition=partition)
    producer.flush(TIMEOUT_S)
    hanging = stage.tool(tool, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert identity not in hanging, hanging
    pattern = f"{re.escape(identity[:-1])}[a-z]"
    has(stage.tool(tool, "list", "--transactional-id-pattern", pattern), rf"^{identity}\s.*Ongoing")
    assert identity not in stage.tool(tool, "list", "--transactional-id-pattern", identity[:-1])
    place = ["--topic", topic, "--partition", "1"]
    has(stage.tool(tool, "describe-producers", *place), r"^\d+\s+\d+\s.*\s0\s*$")
    stage.tool(tool, "abort", *place, "--start-offset", "0")
    has(stage.tool(tool, "describe", "--transactional-id", identity), rf"{identity}\s.*CompleteAbort")
    has(stage.tool(tool, "describe-producers", *place), r"^\d+\s+\d+\s.*\sNone\s*$")
    assert read_committed(stage.bootstrap, topic) == {0: [], 1: []}


def features(stage: Stage) -> None:
    """kafka-features: the finalized versions of transactions and groups."""
    output = stage.tool("org.apache.kafka.tools.FeatureCommand", "describe")
    has(output, r"transaction.version\s.*FinalizedVersionLevel: 2\b", r"group.version\s.*FinalizedVersionLevel: 1\b")


def copy(stage: Stage, source: str, target: str, identity: str) -> None:
    """Copy two partitions of `source` with Kafka's own copier, each record in a transaction."""
    for topic in (source, target):
        create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, source, 2, COUNT)
    for partition in ("0", "1"):
        given = ["--input-topic", source, "--output-topic", target, "--input-partition", partition]
        names = ["--transactional-id", identity, "--consumer-group", f"{identity}.group"]
        size = ["--max-messages", str(COUNT), "--transaction-size", "7", "--enable-random-aborts"]
        stage.tool("org.apache.kafka.tools.TransactionalMessageCopier", *given, *names, *size, where="--broker-list")


def copier(stage: Stage) -> None:
    """TransactionalMessageCopier, a test of Kafka, copies every record once, with random aborts."""
    source, target = stage.name("source"), stage.name("target")
    copy(stage, source, target, stage.name("id"))
    copied = sorted(value for values in read_committed(stage.bootstrap, target).values() for value in values)
    assert copied == sorted(f"{partition}-{number}" for partition in range(2) for number in range(COUNT)), copied


def leader_election(stage: Stage) -> None:
    """kafka-leader-election: a leader exists, and no election is needed."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 1)
    asked = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    has(stage.tool("org.apache.kafka.tools.LeaderElectionCommand", *asked), "Valid replica already elected|completed")


def reassignment(stage: Stage) -> None:
    """kafka-reassign-partitions: --list and --generate answer, --execute to an existing broker is completed at once."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 1)
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    has(stage.tool(tool, "--list"), "No partition reassignments found")
    moved = stage.file("topics.json", json.dumps({"topics": [{"topic": topic}], "version": 1}))
    brokers = brokers_of(stage)
    asked = ["--generate", "--topics-to-move-json-file", moved, "--broker-list", brokers[0]]
    has(stage.tool(tool, *asked), "Proposed partition reassignment")
    placement = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [int(brokers[0])]}]}
    moved = stage.file("placement.json", json.dumps(placement))
    has(stage.tool(tool, "--execute", "--reassignment-json-file", moved), "Successfully started partition reassignment")
    verified = stage.tool(tool, "--verify", "--reassignment-json-file", moved)
    has(verified, f"Reassignment of partition {topic}-0 is completed")


def delete_records(stage: Stage) -> None:
    """kafka-delete-records: the log start offset moves."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 1)
    fill(stage.bootstrap, topic, 1, COUNT)
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 12}], "version": 1}
    asked = ["--offset-json-file", stage.file("offsets.json", json.dumps(wanted))]
    has(stage.tool("org.apache.kafka.tools.DeleteRecordsCommand", *asked), r"low_watermark: 12")


def verifiable(stage: Stage) -> None:
    """kafka-verifiable-producer, -consumer: each record is acknowledged, and consumed."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 2)
    output = stage.tool("org.apache.kafka.tools.VerifiableProducer", "--topic", topic, "--max-messages", "200")
    has(output, r'"acked":200\b')
    read = ["--topic", topic, "--group-id", stage.name("group"), "--max-messages", "200"]
    output = stage.tool("org.apache.kafka.tools.VerifiableConsumer", *read, "--reset-policy", "earliest")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
    assert {"startup_complete", "partitions_assigned", "offsets_committed"} <= {event["name"] for event in events}


def verifiable_share(stage: Stage) -> None:
    """kafka-verifiable-share-consumer: each record is delivered to a share group, and acknowledged."""
    topic = stage.name("topic")
    create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, topic, 2, COUNT)
    read = ["--topic", topic, "--group-id", stage.name("group"), "--max-messages", str(2 * COUNT)]
    output = stage.tool("org.apache.kafka.tools.VerifiableShareConsumer", *read, "--offset-reset-strategy", "earliest")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for name in ("records_consumed", "offsets_acknowledged"):
        assert sum(event["count"] for event in events if event["name"] == name) == 2 * COUNT, output


def api_versions(stage: Stage) -> None:
    """kafka-broker-api-versions: the tool can use the APIs of the brokers."""
    has(
        stage.tool("org.apache.kafka.tools.BrokerApiVersionsCommand"),
        r"Produce\(0\): .*usable",
        r"Fetch\(1\): .*usable",
    )


def cluster(stage: Stage) -> None:
    """kafka-cluster, kafka-groups, kafka-metadata-quorum: a cluster id, a list of groups, voters with their lags."""
    has(stage.tool("org.apache.kafka.tools.ClusterTool cluster-id"), "Cluster ID: .+")
    quorum = "org.apache.kafka.tools.MetadataQuorumCommand"
    has(stage.tool(quorum, "describe", "--status"), r"^MaxFollowerLag:\s+\d+$")
    has(stage.tool(quorum, "describe", "--replication"), r"\s0\s+\d+\s+\d+\s+Leader")
    group, topic = stage.name("group"), stage.name("topic")
    stage.tool(CONSOLE_CONSUMER, "--topic", topic, "--group", group, "--timeout-ms", "2000")
    has(stage.tool("org.apache.kafka.tools.GroupsCommand", "--list"), rf"^{group}\s+Classic")


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    rows = [
        ("tool-topics", topics),
        ("tool-configs", configs),
        ("tool-quotas", quotas),
        ("tool-client-metrics", client_metrics),
        ("tool-passwords", passwords),
        ("tool-acls", access_control_lists),
        ("tool-console", console),
        ("tool-consumer-groups", consumer_groups),
        ("tool-share-groups", share_groups),
        ("tool-performance", performance),
        ("tool-get-offsets", get_offsets),
        ("tool-log-dirs", log_dirs),
        ("tool-transactions", transactions),
        ("tool-transactions-open", open_transaction),
        ("tool-transactions-abort", abort),
        ("tool-transactional-copier", copier),
        ("tool-leader-election", leader_election),
        ("tool-reassign-partitions", reassignment),
        ("tool-delete-records", delete_records),
        ("tool-verifiable", verifiable),
        ("tool-verifiable-share", verifiable_share),
        ("tool-api-versions", api_versions),
        ("tool-cluster", cluster),
        ("tool-features", features),
    ]
    return [Scenario(name, "tools", (run.__doc__ or "").rstrip(), run) for name, run in rows]
