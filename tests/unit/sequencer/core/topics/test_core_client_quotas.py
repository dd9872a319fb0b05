"""Client quotas: a command changes all quotas that it names, or none; and the sizes of logs are reported."""

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import AlterClientQuotas, Done, QuotaChange, QuotaPart, Rejected
from penstock.contracts.levels import QUOTAS_LEVEL, level_of
from penstock.contracts.queries.log import LogSizesQuery
from penstock.contracts.queries.quotas import ClientQuotasQuery
from penstock.contracts.queries.topics import ValidateQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from penstock_sequencer.core.topics.client_quotas import client_quotas, log_sizes
from tests.unit.sequencer.core.core_world import World, batch

ALICE = [QuotaPart("user", "alice")]
DEFAULT_USER = [QuotaPart("user")]


def alter(world: World, entity: list[QuotaPart], seen: int = -1, **values: str | None) -> AlterClientQuotas:
    changes = [QuotaChange(key, value) for key, value in values.items()]
    return AlterClientQuotas(world.now_ms, entity, changes, seen)


def quotas(world: World) -> dict[tuple[tuple[str, str | None], ...], dict[str, str]]:
    view = client_quotas(world.state, ClientQuotasQuery(0))
    return {tuple((part.kind, part.name) for part in entry.entity): entry.values for entry in view.entries}


def test_quotas_are_set_changed_and_removed_one_by_one() -> None:
    world = World()
    assert world.do(alter(world, ALICE, producer_byte_rate="1000", request_percentage="12.5")) == Done()
    assert quotas(world) == {(("user", "alice"),): {"producer_byte_rate": "1000", "request_percentage": "12.5"}}
    assert world.do(alter(world, ALICE, producer_byte_rate=None, consumer_byte_rate="7")) == Done()
    assert quotas(world) == {(("user", "alice"),): {"consumer_byte_rate": "7", "request_percentage": "12.5"}}
    assert world.do(alter(world, ALICE, request_percentage=None, consumer_byte_rate=None)) == Done()
    assert quotas(world) == {}


def test_an_entity_is_the_same_with_its_parts_in_any_order() -> None:
    world = World()
    world.do(alter(world, [QuotaPart("user", "a"), QuotaPart("client-id", "b")], producer_byte_rate="1"))
    world.do(alter(world, [QuotaPart("client-id", "b"), QuotaPart("user", "a")], producer_byte_rate="2"))
    assert quotas(world) == {(("client-id", "b"), ("user", "a")): {"producer_byte_rate": "2"}}


def test_the_default_entity_differs_from_every_named_entity() -> None:
    world = World()
    world.do(alter(world, ALICE, producer_byte_rate="1"))
    world.do(alter(world, DEFAULT_USER, producer_byte_rate="2"))
    assert quotas(world) == {
        (("user", "alice"),): {"producer_byte_rate": "1"},
        (("user", None),): {"producer_byte_rate": "2"},
    }


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ([], {"producer_byte_rate": "1"}),
        ([QuotaPart("group", "a")], {"producer_byte_rate": "1"}),
        ([QuotaPart("user", "a"), QuotaPart("user", "b")], {"producer_byte_rate": "1"}),
        ([QuotaPart("user", "a"), QuotaPart("ip", "10.0.0.1")], {"connection_creation_rate": "1"}),
        ([QuotaPart("ip", "example.org")], {"connection_creation_rate": "1"}),
        ([QuotaPart("user", "a" * 256)], {"producer_byte_rate": "1"}),
        (ALICE, {"connection_creation_rate": "1"}),
        ([QuotaPart("ip", "10.0.0.1")], {"producer_byte_rate": "1"}),
        (ALICE, {"no_such_rate": "1"}),
        (ALICE, {"producer_byte_rate": "0"}),
        (ALICE, {"producer_byte_rate": "1.5"}),
        (ALICE, {"producer_byte_rate": "1", "consumer_byte_rate": "-1"}),
        (ALICE, {"request_percentage": "nan"}),
    ],
)
def test_an_invalid_quota_is_rejected_and_nothing_is_kept(entity: list[QuotaPart], values: dict[str, str]) -> None:
    world = World()
    rejected = world.do(alter(world, entity, **values))
    assert rejected.rejection == Rejection.INVALID_REQUEST
    assert rejected.message
    assert quotas(world) == {}


def test_an_address_may_have_no_connections_at_all() -> None:
    world = World()
    assert world.do(alter(world, [QuotaPart("ip", "10.0.0.1")], connection_creation_rate="0")) == Done()


def test_a_sender_that_has_not_seen_the_last_change_is_rejected_unless_nothing_would_change() -> None:
    world = World()
    before = world.state.sequence
    world.do(alter(world, ALICE, producer_byte_rate="1"))
    assert world.do(alter(world, ALICE, before, producer_byte_rate="1")) == Done()
    assert world.do(alter(world, ALICE, before, producer_byte_rate="2")).rejection == Rejection.STALE
    assert world.do(alter(world, ALICE, world.state.sequence, producer_byte_rate="2")) == Done()


def test_the_last_change_is_reported_and_a_command_without_effect_is_no_change() -> None:
    world = World()
    assert client_quotas(world.state, ClientQuotasQuery(0)).altered_sequence == 0
    world.do(alter(world, ALICE, producer_byte_rate="1"))
    changed = world.state.sequence
    world.do(alter(world, ALICE, producer_byte_rate="1"))
    world.do(alter(world, DEFAULT_USER, producer_byte_rate=None))
    assert client_quotas(world.state, ClientQuotasQuery(0)).altered_sequence == changed


def test_validation_returns_the_outcome_and_changes_nothing() -> None:
    world = World()
    commands = [alter(world, ALICE, producer_byte_rate="1"), alter(world, ALICE, producer_byte_rate="0")]
    view = queries.validate(world.state, ValidateQuery(0, list(commands)))
    assert view.outcomes[0] == Done()
    assert isinstance(view.outcomes[1], Rejected)
    assert quotas(world) == {}


def test_the_number_of_entities_is_limited_and_existing_ones_can_still_be_changed() -> None:
    world = World()
    for number in range(DEFAULT_LIMITS.topics.quota_entities_max):
        apply_entry(
            world.state,
            world.state.sequence + 1,
            [[alter(world, [QuotaPart("client-id", f"c{number}")], producer_byte_rate="1")]],
        )
    assert world.do(alter(world, ALICE, producer_byte_rate="1")).rejection == Rejection.INVALID_REQUEST
    assert world.do(alter(world, [QuotaPart("client-id", "c7")], producer_byte_rate="2")) == Done()
    assert world.do(alter(world, [QuotaPart("client-id", "c7")], producer_byte_rate=None)) == Done()
    assert world.do(alter(world, ALICE, producer_byte_rate="1")) == Done()


def test_quotas_need_their_level() -> None:
    assert level_of([alter(World(), ALICE, producer_byte_rate="1")]) == QUOTAS_LEVEL


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ALICE, DEFAULT_USER, [QuotaPart("client-id", "c"), QuotaPart("user", "alice")]]),
            st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
            st.sampled_from([None, "1", "2", "x"]),
        ),
        max_size=12,
    )
)
@settings(max_examples=60)
def test_a_snapshot_keeps_quotas_and_later_entries_have_the_same_effect(
    steps: list[tuple[list[QuotaPart], str, str | None]],
) -> None:
    whole, resumed = new_state(), new_state()
    for sequence, (entity, key, value) in enumerate(steps, 1):
        command = AlterClientQuotas(1_000, entity, [QuotaChange(key, value)])
        outcomes = [apply_entry(state, sequence, [[command]])[0] for state in (whole, resumed)]
        assert outcomes[0] == outcomes[1]
        resumed = decode_state(encode_state(resumed))
        assert encode_state(resumed) == encode_state(whole)
    assert resumed.client_quotas == whole.client_quotas
    assert list(resumed.client_quotas) == list(whole.client_quotas)


def test_the_size_of_a_log_is_the_number_of_bytes_written_to_it() -> None:
    world = World()
    world.topic("t", partitions=2)
    world.topic("u", number=2)
    world.produce(batch(length=300), partition=1)
    world.produce(batch(length=50), partition=1)
    view = log_sizes(world.state, LogSizesQuery(0, None))
    assert {each.name: each.size_bytes for each in view.topics} == {"t": [0, 350], "u": [0]}
    asked = log_sizes(world.state, LogSizesQuery(0, ["u", "gone", "u"]))
    assert [each.name for each in asked.topics] == ["u"]
