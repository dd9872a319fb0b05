"""Subscriptions to metrics of clients: a command changes one of them as a whole, or nothing."""

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import AlterClientMetrics, ConfigChange, ConfigOperation, Done, Rejected
from penstock.contracts.levels import CLIENT_METRICS_LEVEL, level_of
from penstock.contracts.queries.client_metrics import ClientMetricsQuery
from penstock.contracts.queries.topics import ValidateQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import Limits, TopicLimits
from penstock_sequencer.core.topics.client_metrics import client_metrics
from tests.unit.sequencer.core.core_strategies import client_metrics_commands, usual, wild
from tests.unit.sequencer.core.core_world import World

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def alter(
    world: World, name: str, *changes: tuple[str, ConfigOperation, str], replace: bool = False, seen: int = -1
) -> AlterClientMetrics:
    return AlterClientMetrics(world.now_ms, name, [ConfigChange(*each) for each in changes], replace, seen)


def subscriptions(world: World) -> dict[str, dict[str, str]]:
    return client_metrics(world.state, ClientMetricsQuery(0)).subscriptions


def test_a_subscription_begins_with_its_first_configuration_and_ends_with_its_last() -> None:
    world = World()
    assert world.do(alter(world, "s", ("metrics", SET, "a,b"), ("interval.ms", SET, "100"))) == Done()
    assert subscriptions(world) == {"s": {"metrics": "a,b", "interval.ms": "100"}}
    assert world.do(alter(world, "s", ("metrics", DELETE, ""))) == Done()
    assert world.do(alter(world, "s", ("interval.ms", DELETE, ""))) == Done()
    assert subscriptions(world) == {}


def test_lists_grow_from_nothing_and_shrink() -> None:
    world = World()
    world.do(alter(world, "s", ("metrics", APPEND, "a")))
    world.do(alter(world, "s", ("metrics", APPEND, "b")))
    assert subscriptions(world) == {"s": {"metrics": "a,b"}}
    world.do(alter(world, "s", ("metrics", SUBTRACT, "a")))
    assert subscriptions(world) == {"s": {"metrics": "b"}}


def test_with_replace_all_other_configurations_go() -> None:
    world = World()
    world.do(alter(world, "s", ("metrics", SET, "a")))
    world.do(alter(world, "s", ("match", SET, "client_id=x"), replace=True))
    assert subscriptions(world) == {"s": {"match": "client_id=x"}}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", "1", "Unknown client metrics configuration: x"),
        ("interval.ms", "99", "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ("interval.ms", "1h", "Invalid value 1h for configuration interval.ms: Not a number of type INT"),
        ("match", "client_id", "Illegal client matching pattern: client_id"),
        ("match", "client_id=a=b", "Illegal client matching pattern: client_id=a=b"),
        ("match", "user=a", "Illegal client matching pattern: user=a"),
        ("match", "client_id=", "Illegal client matching pattern: client_id="),
        ("match", "client_id=(", "Illegal client matching pattern: client_id=("),
        ("metrics", "a" * 1_001, "the value of metrics is longer than 1000 characters"),
    ],
)
def test_bad_configurations_are_rejected_with_the_text_of_kafka(name: str, value: str, message: str) -> None:
    world = World()
    outcome = world.do(alter(world, "s", (name, SET, value)))
    assert isinstance(outcome, Rejected)
    assert outcome.rejection == Rejection.INVALID_CONFIG
    assert outcome.message.startswith(message)
    assert subscriptions(world) == {}


@pytest.mark.parametrize("name", ["", "s" * 256])
def test_a_subscription_has_a_name_of_limited_length(name: str) -> None:
    world = World()
    assert world.do(alter(world, name, ("metrics", SET, "a"))).rejection == Rejection.INVALID_REQUEST


def test_a_late_command_changes_nothing_and_the_same_command_again_is_no_change() -> None:
    world = World()
    before = world.state.sequence
    world.do(alter(world, "s", ("metrics", SET, "a")))
    changed = client_metrics(world.state, ClientMetricsQuery(0)).altered_sequence
    assert changed == world.state.sequence
    assert world.do(alter(world, "s", ("metrics", SET, "a"), seen=before)) == Done()
    assert world.do(alter(world, "t", ("metrics", SET, "b"), seen=before)).rejection == Rejection.STALE
    assert client_metrics(world.state, ClientMetricsQuery(0)).altered_sequence == changed
    assert world.do(alter(world, "t", ("metrics", SET, "b"), seen=world.state.sequence)) == Done()


def test_the_number_of_subscriptions_is_limited_and_existing_ones_can_be_changed() -> None:
    world = World(Limits(topics=TopicLimits(metrics_subscriptions_max=1)))
    world.do(alter(world, "s", ("metrics", SET, "a")))
    assert world.do(alter(world, "t", ("metrics", SET, "a"))).rejection == Rejection.INVALID_REQUEST
    assert world.do(alter(world, "s", ("metrics", SET, "b"))) == Done()
    assert world.do(alter(world, "s", replace=True)) == Done()
    assert world.do(alter(world, "t", ("metrics", SET, "a"))) == Done()


def test_validation_returns_the_outcome_and_changes_nothing() -> None:
    world = World()
    commands = [alter(world, "s", ("metrics", SET, "a")), alter(world, "s", ("bad", SET, "a"))]
    view = queries.validate(world.state, ValidateQuery(0, list(commands)))
    assert view.outcomes[0] == Done()
    assert isinstance(view.outcomes[1], Rejected)
    assert subscriptions(world) == {}


def test_subscriptions_need_their_level() -> None:
    assert level_of([alter(World(), "s", ("metrics", SET, "a"))]) == CLIENT_METRICS_LEVEL


def test_a_state_without_subscriptions_has_the_bytes_of_the_releases_before() -> None:
    world = World()
    before = encode_state(world.state)
    assert b"client_metrics" not in before
    world.do(alter(world, "s", ("metrics", SET, "a")))
    assert b"client_metrics" in encode_state(world.state)


@given(st.lists(client_metrics_commands(usual) | client_metrics_commands(wild), max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_snapshot_keeps_subscriptions_and_later_entries_have_the_same_effect(
    commands: list[AlterClientMetrics],
) -> None:
    whole, resumed = new_state(), new_state()
    for sequence, command in enumerate(commands, 1):
        outcomes = [apply_entry(state, sequence, [[command]])[0] for state in (whole, resumed)]
        assert outcomes[0] == outcomes[1]
        assert all(whole.client_metrics.values())
        assert whole.metrics_altered_sequence <= sequence
        resumed = decode_state(encode_state(resumed))
        assert encode_state(resumed) == encode_state(whole)
    assert list(resumed.client_metrics.items()) == list(whole.client_metrics.items())
