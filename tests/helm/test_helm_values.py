"""Values of the chart: wrong ones are rejected with words that name the value, and each has its comment."""

from typing import Any

import pytest

from tests.testkit.docs.chart import CHART, schema_text, values
from tests.testkit.helm import Chart

pytestmark = pytest.mark.helm

EXTERNAL = {"external": {"enabled": True}}

WRONG: list[tuple[dict[str, Any], str]] = [
    # Of the wrong type, or unknown: by the schema.
    ({"gateway": {"replicas": "two"}}, "got string, want integer"),
    ({"gateway": {"replica": 2}}, "additional properties 'replica' not allowed"),
    ({"gateway": {"settings": {"flush_interval_ms": 5}}}, "additional properties 'flush_interval_ms' not allowed"),
    ({"flusher": {"settings": {"flush_interval_ms": 1}}}, "minimum: got 1, want 5"),
    ({"flusher": {"settings": {"flush_interval_ms": "fast"}}}, "got string, want integer"),
    ({"gateway": {"settings": {"authorizer": True}}}, "got boolean, want string"),
    ({"gateway": {"settings": {"nats_password": "x"}}}, "additional properties 'nats_password' not allowed"),
    ({"settings": {"store_url": "s3://x"}}, "additional properties 'store_url' not allowed"),
    ({"shape": "agent"}, "value must be one of 'separate', 'agents'"),
    ({"kafka": {"securityProtocol": "TLS"}}, "value must be one of 'SASL_SSL', 'SSL', 'SASL_PLAINTEXT', 'PLAINTEXT'"),
    ({"zones": []}, "minItems: got 0, want 1"),
    ({"zones": [{"name": "Zone_A"}]}, "'Zone_A' does not match pattern"),
    ({"zones": [{"name": "a", "nodes": "x"}]}, "additional properties 'nodes' not allowed"),
    ({"extraEnv": [{"value": "x"}]}, "missing property 'name'"),
    ({"pods": {"annotations": {"a": 1}}}, "got number, want string"),
    # Values that do not go together: by the templates.
    ({"store": {"url": ""}}, "set store.url to the address of the object store"),
    ({"store": {"url": "s3://b/?access_key=a&secret_key=b"}}, "store.url has a key"),
    ({"natsClient": {"url": "tls://me:word@nats:4222"}}, "natsClient.url has a login"),
    ({"extraEnv": [{"name": "PENSTOCK_ZONE", "value": "b"}]}, "extraEnv: PENSTOCK_ZONE is a setting"),
    ({"nats": {"enabled": False}}, "set natsClient.url to the addresses of your NATS servers"),
    ({"credentials": {"enabled": False}}, "without credentials.enabled, set natsClient.tls, http.token"),
    ({"natsClient": {"tls": False}}, "natsClient.tls and nats.config.nats.tls.enabled must be the same"),
    ({"sequencer": {"settings": {"journal_replicas": 5}}}, "journal_replicas is 5, but there are 3 NATS servers"),
    ({"zones": [{"name": "a"}, {"name": "a"}]}, "two zones have the name a"),
    ({"kafka": EXTERNAL}, "set externalHost of the zone z1"),
    (
        {"kafka": {"external": {"enabled": True, "type": "NodePort"}}, "zones": [{"name": "a", "externalHost": "k"}]},
        "set nodePort of the zone a",
    ),
    ({"clusters": [{"name": "a/b"}]}, "'a/b' does not match pattern"),
    ({"clusters": [{"name": "a", "quotas": {"partition": 1}}]}, "additional properties 'partition' not allowed"),
    ({"clusters": [{"name": "a", "quotas": {"partitions": -1}}]}, "minimum: got -1, want 0"),
    ({"clusters": [{"name": "a"}]}, "clusters: add one with the name default"),
    ({"clusters": [{"name": "default"}, {"name": "default"}]}, "clusters: default is there twice"),
    ({"console": {"ingress": {"enabled": True}}}, "set console.ingress.host and console.ingress.tlsSecretName"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_wrong_values_are_rejected_with_a_reason(chart: Chart, wrong: dict[str, Any], words: str) -> None:
    assert words in chart.error("minimal", wrong)


def test_a_key_file_of_azure_is_no_key(chart: Chart) -> None:
    assert chart.render("minimal", {"store": {"url": "az://records/?account=a&account_key_file=/run/credentials/key"}})


def test_each_value_has_a_comment() -> None:
    assert not [value.path for value in values() if not value.meaning]


def test_the_schema_rejects_unknown_values_everywhere() -> None:
    assert '"additionalProperties": true' not in schema_text()
    assert (CHART / "values.schema.json").read_text() == schema_text()
