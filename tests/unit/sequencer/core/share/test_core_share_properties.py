"""Share groups with any journal: no exception, all invariants, and the same state with and without snapshots."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.commands import (
    AlterGroupConfigs,
    CommandReply,
    ConfigChange,
    ConfigOperation,
    RaiseLevel,
    ShareHeartbeat,
)
from penstock.contracts.levels import NEWEST_LEVEL, SHARE_GROUPS_LEVEL
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from tests.unit.sequencer.core.core_share_strategies import share_commands
from tests.unit.sequencer.core.core_strategies import (
    OPENING,
    Log,
    cut,
    data_commands,
    group_commands,
    retention_commands,
    transaction_commands,
    usual,
    wild,
)
from tests.unit.sequencer.core.core_world import START_MS, check_invariants

EARLIEST = [ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")]
SHARING: Log = [
    [[RaiseLevel(START_MS, SHARE_GROUPS_LEVEL)]],
    *OPENING,
    [
        [
            AlterGroupConfigs(START_MS, "g", EARLIEST),
            ShareHeartbeat(START_MS, "g", "m1", 0, None, "client", "host", ["t", "u"]),
            ShareHeartbeat(START_MS, "g", "m2", 0, None, "client", "host", ["t"]),
        ]
    ],
]
NEWEST: Log = [[[RaiseLevel(START_MS, NEWEST_LEVEL)]], *SHARING[1:]]
others = st.one_of(data_commands(usual), group_commands(usual), retention_commands(usual), transaction_commands(usual))
mixed = st.lists(st.one_of(share_commands(usual), share_commands(usual), others), min_size=1, max_size=20)
alone = st.lists(share_commands(usual) | share_commands(wild), min_size=1, max_size=20)
logs = st.builds(cut, st.sampled_from([SHARING, NEWEST, NEWEST, OPENING, []]), mixed | alone, st.integers(1, 3))
any_log = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@any_log
@given(logs)
def test_every_command_has_an_outcome_and_the_invariants_hold(log: Log) -> None:
    state = new_state()
    for sequence, entry in enumerate(log, 1):
        outcomes, _ = apply_entry(state, sequence, entry)
        check_invariants(state)
        for request in outcomes:
            msgspec.msgpack.decode(msgspec.msgpack.encode(CommandReply(sequence, request)), type=CommandReply)


@any_log
@given(logs, st.integers(0, 20))
def test_a_snapshot_and_the_entries_after_it_are_the_whole_journal(log: Log, place: int) -> None:
    whole, half = new_state(), new_state()
    outcomes: list[Any] = [apply_entry(whole, sequence, entry)[0] for sequence, entry in enumerate(log, 1)]
    for sequence, entry in enumerate(log, 1):
        if sequence == min(place, len(log)):
            half = decode_state(encode_state(half))
            check_invariants(half)
        assert apply_entry(half, sequence, entry)[0] == outcomes[sequence - 1]
    assert encode_state(half) == encode_state(whole)
