"""The fake clients of consoles take the arguments that those of kafka-python take, and answer in the same form."""

import inspect
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.consumer.fetcher import ConsumerRecord

from penstock.cli.kafka.session import Session
from penstock_console.kafka.sessions import KafkaSessions
from tests.unit.console.console_fakes import (
    FakeAdmin,
    FakeConsumer,
    FakeKafka,
    FakeProducer,
    FakeRecord,
    FakeSession,
)

OWN = {"run", "send"}  # of the part of kafka-python that is not public
PAIRS: list[tuple[type[Any], type[Any]]] = [
    (FakeAdmin, KafkaAdminClient),
    (FakeConsumer, KafkaConsumer),
    (FakeProducer, KafkaProducer),
    (FakeSession, Session),
    (FakeKafka, KafkaSessions),
]


def methods(kind: type[Any]) -> list[str]:
    return [name for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")]


@pytest.mark.parametrize(("fake", "real"), PAIRS, ids=lambda kind: kind.__name__)
def test_each_method_of_a_fake_takes_arguments_of_the_real_one(fake: type[Any], real: type[Any]) -> None:
    for name in methods(fake):
        if fake is FakeAdmin and name in OWN:
            continue
        own = inspect.signature(getattr(fake, name)).parameters
        others = inspect.signature(getattr(real, name)).parameters
        takes_more = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in others.values())
        names = [each for each, found in own.items() if found.kind is not inspect.Parameter.VAR_KEYWORD]
        positions = [list(others).index(each) for each in names if each in others]
        assert takes_more or set(names) <= set(others), f"{name} takes {names}, the real one {list(others)}"
        assert positions == sorted(positions), f"{name} has its arguments in another order"


def test_a_fake_record_has_fields_of_a_real_one() -> None:
    assert set(FakeRecord.__struct_fields__) <= set(dir(ConsumerRecord))
