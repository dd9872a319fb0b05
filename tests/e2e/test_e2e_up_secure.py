"""`penstock up --secure`: clients log in over TLS with the files that it makes, and no others are served."""

import stat
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, running

pytestmark = pytest.mark.e2e


def settings(cluster: Cluster, **changed: str) -> dict[str, str]:
    """The settings in the file for librdkafka."""
    lines = (cluster.data / "secure" / "librdkafka.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines) | {
        name.replace("_", "."): value for name, value in changed.items()
    }


def topics(config: dict[str, str]) -> set[str]:
    return set(AdminClient(config | {"log_level": "0"}).list_topics(timeout=20).topics)


def test_the_administrator_logs_in_with_its_files_and_no_other_client_does(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--secure") as cluster:
        given = settings(cluster)
        admin = AdminClient(given)
        admin.create_topics([NewTopic("private", 1, 1)])["private"].result(60)
        producer, errors = Producer(given), list[object]()
        producer.produce("private", b"x", on_delivery=lambda error, _: errors.append(error))
        assert (producer.flush(60), errors) == (0, [None])
        strangers = [
            {"bootstrap.servers": cluster.kafka},
            settings(cluster, sasl_password="wrong"),
            settings(cluster, sasl_username="stranger"),
            {
                "bootstrap.servers": cluster.kafka,
                "security.protocol": "SSL",
                "ssl.ca.location": given["ssl.ca.location"],
            },
        ]
        for config in strangers:
            with pytest.raises(KafkaException):
                topics(config)
        folder = cluster.data / "secure"
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        password = (folder / "password").read_text().strip()
        assert f"--command-config {folder / 'client.properties'}" in "".join(cluster.output)
        texts = [path.read_text(errors="replace") for path in (cluster.data / "logs").iterdir()]
        assert not any(password in text for text in [*texts, *cluster.output])
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert cluster.stop() == 0
        cluster.start()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert topics(settings(cluster)) >= {"private"}
