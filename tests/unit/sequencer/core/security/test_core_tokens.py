"""Delegation tokens: the users that may change one, its end, and the queries by which gateways follow changes."""

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import (
    Command,
    CreateToken,
    DelegationToken,
    ExpireToken,
    Outcome,
    Rejected,
    RenewToken,
    Tick,
    TokenCreated,
    TokenExpiry,
)
from penstock.contracts.levels import TOKENS_LEVEL, level_of
from penstock.contracts.queries.delegation_tokens import TokensQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.previews import preview
from penstock_sequencer.core.security.tokens import delegation_tokens, token_bytes
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, SecurityLimits
from tests.unit.sequencer.core.core_strategies import token_commands, usual, wild
from tests.unit.sequencer.core.core_world import World

NOW_MS, HOUR_MS, MINUTE_MS = 1_000_000_000, 3_600_000, 60_000
DAY_MS = 24 * HOUR_MS


def create(token_id: str = "one", now_ms: int = NOW_MS, **others: object) -> CreateToken:
    fields = {"key_id": "k", "owner": "alice", "requester": "alice", "renewers": ("bob",)}
    lifetimes = {"lifetime_ms": HOUR_MS, "max_lifetime_ms": DAY_MS}
    return CreateToken(now_ms, token_id, **(fields | lifetimes | others))  # type: ignore[arg-type]


def renew(now_ms: int, user: str = "alice", lifetime_ms: int = HOUR_MS, seen: int = -1) -> RenewToken:
    return RenewToken(now_ms, "one", user, lifetime_ms, seen)


def expire(now_ms: int, user: str | None = "alice", lifetime_ms: int = -1, seen: int = -1) -> ExpireToken:
    return ExpireToken(now_ms, "one", user, lifetime_ms, seen)


def rejection(outcome: Outcome) -> Rejection:
    assert isinstance(outcome, Rejected), outcome
    return outcome.rejection


@pytest.fixture
def world() -> World:
    world = World()
    world.do(create())
    return world


def test_a_token_ends_after_its_lifetime_and_at_the_latest_at_its_maximum() -> None:
    world = World()
    created = world.do(create(renewers=("bob", "carol")))
    times = (NOW_MS, NOW_MS + HOUR_MS, NOW_MS + DAY_MS)
    token = DelegationToken("one", "k", "alice", "alice", ("bob", "carol"), *times, altered_sequence=1)
    assert created == TokenCreated(token)
    short = world.do(create("short", max_lifetime_ms=5))
    assert (short.token.expiry_ms, short.token.max_ms) == (NOW_MS + 5, NOW_MS + 5)
    assert world.do(create("long", lifetime_ms=2**60, max_lifetime_ms=2**60)).token.max_ms == NOW_MS + 400 * DAY_MS


def test_owner_and_renewers_move_the_expiry_and_nobody_beyond_the_maximum(world: World) -> None:
    assert world.do(renew(NOW_MS + 1)) == TokenExpiry(NOW_MS + 1 + HOUR_MS)
    assert world.do(renew(NOW_MS + 2, "bob", 5)) == TokenExpiry(NOW_MS + 7)
    assert world.do(renew(NOW_MS + 3, "bob", 100 * DAY_MS)) == TokenExpiry(NOW_MS + DAY_MS)
    assert world.do(expire(NOW_MS + 4, "bob", 2 * DAY_MS)) == TokenExpiry(NOW_MS + DAY_MS)
    assert world.do(expire(NOW_MS + 5, "alice", 10)) == TokenExpiry(NOW_MS + 15)
    for command in (renew(NOW_MS + 6, "carol"), expire(NOW_MS + 6, "carol")):
        assert rejection(world.do(command)) == Rejection.TOKEN_OWNER_MISMATCH
        assert rejection(preview(world.state, command)) == Rejection.TOKEN_OWNER_MISMATCH
    for command in (renew(NOW_MS + 15), expire(NOW_MS + 15), renew(NOW_MS + 15, "carol")):
        assert rejection(world.do(command)) == Rejection.TOKEN_EXPIRED


def test_the_requester_of_a_token_for_another_owner_may_not_change_it() -> None:
    """Kafka gives it no right beside that to describe the token."""
    world = World()
    world.do(create(requester="service"))
    assert rejection(world.do(renew(NOW_MS, "service"))) == Rejection.TOKEN_OWNER_MISMATCH


def test_a_revoked_token_is_unknown_and_an_operator_can_revoke_any(world: World) -> None:
    assert world.do(expire(NOW_MS + 1, None)) == TokenExpiry(NOW_MS + 1)
    assert world.state.tokens["one"].is_revoked
    for command in (renew(NOW_MS + 2), expire(NOW_MS + 2), expire(NOW_MS + 2, lifetime_ms=5)):
        assert rejection(world.do(command)) == Rejection.TOKEN_NOT_FOUND
    assert rejection(world.do(RenewToken(1, "other", "alice", 1))) == Rejection.TOKEN_NOT_FOUND


def test_a_late_renewal_does_not_undo_an_end_and_a_repeated_end_is_accepted(world: World) -> None:
    seen = world.state.sequence
    assert world.do(expire(NOW_MS + 1, lifetime_ms=5, seen=seen)) == TokenExpiry(NOW_MS + 6)
    late = renew(NOW_MS + 2, seen=seen)
    assert rejection(preview(world.state, late)) == Rejection.STALE
    assert rejection(world.do(late)) == Rejection.STALE
    seen = world.state.sequence
    assert world.do(expire(NOW_MS + 3, seen=seen)) == TokenExpiry(NOW_MS + 3)
    assert world.do(expire(NOW_MS + 4, seen=seen)) == TokenExpiry(NOW_MS + 3)
    assert world.state.tokens["one"].altered_sequence == seen + 1


def test_a_late_copy_finds_its_token_or_comes_too_late() -> None:
    """A void token stays for ten minutes, and a command is too old after ten minutes."""
    world = World()
    first = world.do(create(lifetime_ms=1, max_lifetime_ms=1))
    for later_ms in (0, 1, 10 * MINUTE_MS):
        world.do(Tick(NOW_MS + later_ms))
        assert world.do(create(lifetime_ms=1, max_lifetime_ms=1)) == first
    world.do(Tick(NOW_MS + 10 * MINUTE_MS + 1))
    assert not world.state.tokens
    assert rejection(world.do(create())) == Rejection.STALE


def test_the_id_of_another_token_is_rejected(world: World) -> None:
    assert rejection(world.do(create(owner="bob"))) == Rejection.DUPLICATE_RESOURCE
    assert rejection(world.do(create(requester="bob"))) == Rejection.DUPLICATE_RESOURCE


@pytest.mark.parametrize(
    "others",
    [
        {"token_id": ""},
        {"token_id": "t" * 65},
        {"key_id": ""},
        {"owner": ""},
        {"requester": "u" * 256},
        {"renewers": ("",)},
        {"renewers": ("u",) * 21},
        {"renewers": ("u" * 251,) * 4},
    ],
)
def test_an_invalid_token_is_not_created(others: dict[str, object]) -> None:
    world = World()
    command = create(**{"token_id": "one", **others})  # type: ignore[arg-type]
    assert rejection(preview(world.state, command)) == Rejection.INVALID_REQUEST
    assert rejection(world.do(command)) == Rejection.INVALID_REQUEST


def test_one_user_fills_a_part_of_the_table_only() -> None:
    world = World(Limits(security=SecurityLimits(tokens_max=5, tokens_per_requester_max=3)))
    for number in range(3):
        world.do(create(f"a{number}"))
    assert rejection(world.do(create("a3"))) == Rejection.POLICY_VIOLATION
    assert rejection(world.do(create("a3", owner="bob"))) == Rejection.POLICY_VIOLATION
    for number in range(2):
        assert isinstance(world.do(create(f"b{number}", requester="bob")), TokenCreated)
    full = world.do(create("c", requester="carol"))
    assert (full.rejection, full.message) == (Rejection.POLICY_VIOLATION, "the cluster may have 5 delegation tokens")


def test_void_tokens_go_ten_minutes_later_and_others_stay() -> None:
    world = World()
    for number in range(4):
        world.do(create(str(number), lifetime_ms=(number + 1) * MINUTE_MS))
    world.do(ExpireToken(NOW_MS, "3", "alice", -1))
    for later_ms, left in ((10, "0123"), (10 * MINUTE_MS, "012"), (11 * MINUTE_MS - 1, "012"), (12 * MINUTE_MS, "2")):
        world.do(Tick(NOW_MS + later_ms))
        assert "".join(sorted(world.state.tokens)) == left
    world.do(RenewToken(NOW_MS + 12 * MINUTE_MS, "2", "alice", 1))
    world.do(Tick(NOW_MS + 13 * MINUTE_MS))
    assert not world.state.tokens


def test_commands_of_tokens_need_their_level() -> None:
    for command in (create(), renew(1), expire(1)):
        assert level_of([command]) == TOKENS_LEVEL


def test_a_query_gets_the_tokens_that_were_changed_since() -> None:
    world = World()
    assert delegation_tokens(world.state, TokensQuery(0)).is_whole
    for number in range(5):
        world.do(create(str(number)))
    known = world.state.tokens_altered_sequence
    view = delegation_tokens(world.state, TokensQuery(0, known))
    assert (view.tokens, view.is_whole, view.is_last, view.altered_sequence) == ([], False, True, known)
    world.do(RenewToken(NOW_MS, "2", "alice", 1))
    world.do(ExpireToken(NOW_MS, "0", "alice", -1))
    view = delegation_tokens(world.state, TokensQuery(0, known))
    assert [(each.token_id, each.is_revoked) for each in view.tokens] == [("2", False), ("0", True)]
    whole = delegation_tokens(world.state, TokensQuery(0, world.state.sequence + 1))
    assert whole.is_whole
    assert [each.token_id for each in whole.tokens] == ["1", "3", "4", "2", "0"]


def test_pages_never_end_inside_an_entry_and_have_all_tokens() -> None:
    world = World(Limits(answers=AnswerLimits(listed_bytes_max=500)))
    for number in range(5):
        commands = [[create(f"{number}-{each}") for each in range(number + 1)]]
        apply_entry(world.state, world.state.sequence + 1, commands)  # type: ignore[arg-type]
    found: list[DelegationToken] = []
    known, pages, is_last = 0, 0, False
    while not is_last:
        view = delegation_tokens(world.state, TokensQuery(0, known))
        found += view.tokens
        known, is_last, pages = view.tokens[-1].altered_sequence, view.is_last, pages + 1
    assert found == list(world.state.tokens.values())
    assert pages > 2


@given(st.text(max_size=255), st.integers(0, 2**62))
def test_the_estimated_size_of_a_token_is_no_less_than_its_size(name: str, number: int) -> None:
    token = DelegationToken(name, name, name, name, (name, name), number, number, number, number)
    assert token_bytes(token) >= len(msgspec.msgpack.encode(token))


@given(st.lists(token_commands(usual) | token_commands(wild), max_size=25))
@settings(max_examples=150)
def test_a_snapshot_keeps_tokens_and_later_entries_have_the_same_effect(steps: list[Command]) -> None:
    whole, resumed = new_state(), new_state()
    for command in steps:
        expected = preview(whole, command)
        before = dict(whole.tokens)
        outcomes = [apply_entry(state, state.sequence + 1, [[command]])[0][0][0] for state in (whole, resumed)]
        assert outcomes[0] == outcomes[1]
        assert expected in (None, outcomes[0])
        assert not isinstance(outcomes[0], Rejected) or before == whole.tokens
        resumed = decode_state(encode_state(resumed))
        assert encode_state(resumed) == encode_state(whole)
    assert list(resumed.tokens.items()) == list(whole.tokens.items())


def test_a_state_without_tokens_has_the_bytes_of_the_level_before() -> None:
    state: State = new_state()
    assert b"tokens" not in encode_state(state)
    apply_entry(state, 1, [[create()]])
    assert b"tokens" in encode_state(state)
