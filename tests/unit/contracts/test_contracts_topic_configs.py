"""Topic configurations are honoured or refused by name, never swallowed."""

import pytest

from penstock.contracts import topic_configs


def test_every_default_is_a_value_that_would_be_accepted() -> None:
    defaults = {name: config.default for name, config in topic_configs.TOPIC_CONFIGS.items()}
    assert topic_configs.objections(defaults) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("max.message.bytes", "60"),
        ("max.message.bytes", "1e6"),
        ("max.message.bytes", "٣٠٠"),
        ("max.message.bytes", "9" * 30),
        ("cleanup.policy", "compact"),
        ("retention.ms", "1000"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(name: str, value: str) -> None:
    (sentence,) = topic_configs.objections({name: value})
    assert name in sentence


def test_the_largest_batch_follows_the_topic() -> None:
    assert topic_configs.message_bytes_max({}) == topic_configs.MESSAGE_BYTES_DEFAULT
    assert topic_configs.message_bytes_max({"max.message.bytes": "2000000"}) == 2_000_000
