"""Names and values of configurations of one broker."""

import pytest

from penstock.contracts.configs.brokers import (
    BROKER_CONFIGS,
    INERT_BROKER_CONFIGS,
    config_of_kept,
    configs_of_broker,
    is_of_broker,
    kept_name,
)
from penstock.contracts.configs.topics import CLUSTER_CONFIGS


def test_every_default_is_valid_or_stands_for_none() -> None:
    wrong = {name: each.default for name, each in BROKER_CONFIGS.items() if each.validation_error(each.default)}
    assert set(wrong.values()) <= {""}
    assert all(not INERT_BROKER_CONFIGS[name].has_effect for name in BROKER_CONFIGS)


def test_a_configuration_with_an_effect_in_the_whole_cluster_is_not_one_of_a_broker() -> None:
    assert not BROKER_CONFIGS.keys() & CLUSTER_CONFIGS.keys()


@pytest.mark.parametrize("broker_id", [0, 7, 2**31 - 1])
def test_a_kept_name_leads_back_to_the_configuration_of_its_broker(broker_id: int) -> None:
    name = kept_name(broker_id, "num.io.threads")
    assert is_of_broker(name)
    assert config_of_kept(name) is BROKER_CONFIGS["num.io.threads"]
    cluster = {name: "3", kept_name(1, "num.io.threads"): "4", "log.retention.ms": "5"}
    assert configs_of_broker(broker_id, cluster) == {"num.io.threads": "3"}


@pytest.mark.parametrize(
    "name",
    [
        "penstock.broker.",
        "penstock.broker.7",
        "penstock.broker.7.",
        "penstock.broker.7.colour",
        "penstock.broker.x.num.io.threads",
        "penstock.broker.-1.num.io.threads",
        "penstock.broker.07.num.io.threads",
        "penstock.broker.2147483648.num.io.threads",
        "num.io.threads",
    ],
)
def test_other_names_keep_nothing(name: str) -> None:
    assert config_of_kept(name) is None
