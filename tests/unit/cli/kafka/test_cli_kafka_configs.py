"""A misspelt configuration of a topic: the error names the nearest one, and nothing is changed."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.kafka.configs import suggestion
from penstock.cli.kafka.session import Session
from penstock.cli.topics.changing import alter_topic, create_topics
from penstock.contracts.configs.topics import RETENTION_MS, validation_errors
from penstock.contracts.errors import Invalid

TOPIC = "orders"


class Admin:
    """The answers of a gateway to the requests of `penstock topic create` and `alter`."""

    def __init__(self) -> None:
        self.configs = {RETENTION_MS: "1000", "of.a.later.release": "1"}

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [{"name": name, "error_code": 0, "partitions": [{}]} for name in names]

    def describe_configs(self, _resources: list[Any], config_filter: str) -> Any:
        source = {"is_sensitive": False, "config_source": "DEFAULT_CONFIG"}
        return {"topic": {TOPIC: {name: {"value": value} | source for name, value in self.configs.items()}}}

    def alter_configs(self, resources: list[Any], **_options: Any) -> Any:
        changes = {name: value for name, (_, value) in resources[0].configs.items() if value is not None}
        reasons = validation_errors(changes)
        self.configs |= {} if reasons else changes
        return {"topic": {TOPIC: f"[Error 40] InvalidConfigurationError: {reasons[0]}" if reasons else "OK"}}

    def create_topics(self, topics: dict[str, Any], **_options: Any) -> Any:
        reasons = validation_errors(topics[TOPIC]["configs"])
        return {"topics": [{"name": TOPIC, "error_code": 40 if reasons else 0, "error_message": "; ".join(reasons)}]}


def session() -> Session:
    return cast(Session, SimpleNamespace(admin=Admin()))


def alter(*, set: tuple[str, ...] = (), unset: tuple[str, ...] = ()) -> list[Any]:
    arguments = Namespace(name=TOPIC, partitions=0, set=list(set), unset=list(unset), dry_run=False)
    return list(alter_topic(arguments, session()).rows)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("retention.msx", "retention.ms"), ("retention_ms", "retention.ms"), ("clean.up.policy", "cleanup.policy")],
)
def test_a_misspelt_configuration_gets_the_nearest_one(name: str, nearest: str) -> None:
    expected = f"{name} is not a supported topic configuration; did you mean {nearest}?"
    with pytest.raises(Invalid) as altered:
        alter(set=(f"{name}=1",))
    assert str(altered.value) == f"topic 'orders' cannot be changed: {expected}"
    with pytest.raises(Invalid) as created:
        create_topics(
            Namespace(names=[TOPIC], partitions=1, config=[f"{name}=1"], if_not_exists=False, dry_run=False), session()
        )
    assert str(created.value) == f"topic 'orders' is not created: {expected}"


def test_a_wrong_value_of_a_known_configuration_gets_no_suggestion() -> None:
    with pytest.raises(Invalid) as failed:
        alter(set=("retention.ms=soon",))
    assert "did you mean" not in str(failed.value)


def test_a_name_without_a_near_one_gets_the_place_of_the_list() -> None:
    assert suggestion(["colour"]) == "; `penstock topic describe TOPIC --all-configs` lists all"


def test_a_misspelt_name_to_unset_is_an_error_because_the_cluster_would_change_nothing() -> None:
    """As in Kafka, the cluster accepts such a removal."""
    with pytest.raises(Invalid) as failed:
        alter(unset=("retention.msx",))
    assert str(failed.value) == "retention.msx is no topic configuration; did you mean retention.ms?"


def test_the_cluster_may_know_more_configurations_than_this_release() -> None:
    assert [each["name"] for each in alter(unset=("of.a.later.release",))] == ["of.a.later.release"]
