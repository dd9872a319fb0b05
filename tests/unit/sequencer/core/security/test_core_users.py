"""Users: a command changes all verifiers that it names for a user, or none of them."""

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import (
    AclsDeleted,
    AlterScramCredentials,
    Command,
    CreateAcls,
    DeleteAcls,
    PerItem,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    ScramVerifier,
)
from penstock.contracts.levels import SECURITY_LEVEL, level_of
from penstock.contracts.queries.security import SecurityQuery, User
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.previews import preview
from penstock_sequencer.core.security.queries import binding_bytes, security, user_bytes
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import AnswerLimits, Limits, SecurityLimits
from tests.unit.sequencer.core.core_strategies import security_commands, usual, wild
from tests.unit.sequencer.core.core_world import World

SHA_256, SHA_512 = ScramMechanism
NONE = Rejection.NONE
FEW = Limits(security=SecurityLimits(users_max=3, bindings_max=3, scram_items_max=4))


def verifier(mechanism: ScramMechanism = SHA_256, letter: bytes = b"k", iterations: int = 4_096) -> ScramVerifier:
    key = letter * (32 if mechanism == SHA_256 else 64)
    return ScramVerifier(mechanism, iterations, b"salt", key, key)


def alter(*changes: ScramUpsertion | ScramDeletion, seen: int = -1) -> AlterScramCredentials:
    upsertions = [each for each in changes if isinstance(each, ScramUpsertion)]
    return AlterScramCredentials(1, upsertions, [each for each in changes if isinstance(each, ScramDeletion)], seen)


def upsert(user: str = "alice", mechanism: ScramMechanism = SHA_256, letter: bytes = b"k") -> ScramUpsertion:
    return ScramUpsertion(user, verifier(mechanism, letter))


def delete(user: str = "alice", mechanism: ScramMechanism = SHA_256) -> ScramDeletion:
    return ScramDeletion(user, mechanism)


def rejections(world: World, *changes: ScramUpsertion | ScramDeletion) -> list[Rejection]:
    outcome = world.do(alter(*changes))
    assert isinstance(outcome, PerItem)
    return outcome.rejections


def binding(name: str = "orders", principal: str = "User:alice") -> AclBinding:
    allowed = (AclOperation.READ, AclPermission.ALLOW)
    return AclBinding(ResourceType.TOPIC, name, PatternType.LITERAL, principal, "*", *allowed)


def test_a_user_has_a_verifier_of_each_mechanism_and_ends_with_the_last() -> None:
    world = World()
    assert rejections(world, upsert(), upsert(mechanism=SHA_512), upsert("bob")) == [NONE] * 3
    assert world.state.users == {"alice": (verifier(), verifier(SHA_512)), "bob": (verifier(),)}
    assert rejections(world, upsert(letter=b"q"), delete(mechanism=SHA_512)) == [NONE] * 2
    assert world.state.users["alice"] == (verifier(letter=b"q"),)
    assert rejections(world, delete()) == [NONE]
    assert list(world.state.users) == ["bob"]


def test_a_user_with_one_rejected_item_keeps_its_verifiers_and_other_users_are_changed() -> None:
    world = World()
    found = rejections(world, upsert(), upsert("bob"), delete(mechanism=SHA_512))
    assert found == [Rejection.RESOURCE_NOT_FOUND, NONE, Rejection.RESOURCE_NOT_FOUND]
    assert list(world.state.users) == ["bob"]


@pytest.mark.parametrize(
    "changes",
    [
        [upsert(), upsert(letter=b"q")],
        [upsert("bob"), delete("bob")],
        [delete("bob"), delete("bob")],
    ],
)
def test_the_same_credential_twice_in_a_request_is_a_duplicate(changes: list[ScramUpsertion | ScramDeletion]) -> None:
    world = World()
    world.do(alter(upsert("bob")))
    before = dict(world.state.users)
    assert set(rejections(world, *changes)) == {Rejection.DUPLICATE_RESOURCE}
    assert world.state.users == before


@pytest.mark.parametrize(
    "change",
    [
        upsert(""),
        upsert("a" * 256),
        delete(""),
        ScramUpsertion("a", verifier(iterations=4_095)),
        ScramUpsertion("a", verifier(iterations=16_385)),
        ScramUpsertion("a", msgspec.structs.replace(verifier(), salt=b"")),
        ScramUpsertion("a", msgspec.structs.replace(verifier(), salt=b"s" * 256)),
        ScramUpsertion("a", msgspec.structs.replace(verifier(), stored_key=b"k" * 31)),
        ScramUpsertion("a", msgspec.structs.replace(verifier(SHA_512), server_key=b"k" * 32)),
    ],
)
def test_invalid_credentials_are_rejected_before_the_journal(change: ScramUpsertion | ScramDeletion) -> None:
    world = World()
    command = alter(change)
    assert preview(world.state, command) == PerItem([Rejection.UNACCEPTABLE_CREDENTIAL])
    assert world.do(command) == PerItem([Rejection.UNACCEPTABLE_CREDENTIAL])
    assert world.state.users == {}
    assert world.state.security_altered_sequence == 0


def test_a_late_copy_of_a_command_does_not_bring_back_an_old_password() -> None:
    world = World()
    seen = world.state.sequence
    old = alter(upsert(letter=b"o"), seen=seen)
    assert world.do(old) == PerItem([NONE])
    assert world.do(old) == PerItem([NONE]), "nothing changes"
    assert world.do(alter(upsert(letter=b"n"), seen=world.state.sequence)) == PerItem([NONE])
    changed = world.state.security_altered_sequence
    assert world.do(old).rejection == Rejection.STALE
    assert world.do(alter(delete(), seen=seen)).rejection == Rejection.STALE
    assert world.do(CreateAcls(1, [binding()], seen)).rejection == Rejection.STALE
    assert world.state.users == {"alice": (verifier(letter=b"n"),)}
    assert world.state.security_altered_sequence == changed


def test_the_number_of_users_is_limited_and_existing_ones_can_still_be_changed() -> None:
    world = World(FEW)
    world.do(alter(upsert("a"), upsert("b"), upsert("c")))
    full = world.do(alter(upsert("d")))
    assert (full.rejection, full.message) == (Rejection.POLICY_VIOLATION, "the cluster may have 3 users")
    assert rejections(world, upsert("a", letter=b"q"), upsert("b", SHA_512)) == [NONE] * 2
    assert rejections(world, upsert("d"), delete("a")) == [NONE] * 2
    assert list(world.state.users) == ["b", "c", "d"]
    assert world.do(alter(*[upsert(f"u{n}") for n in range(5)])).rejection == Rejection.INVALID_REQUEST


def test_security_commands_need_their_level() -> None:
    for command in (alter(upsert()), CreateAcls(1, [binding()]), DeleteAcls(1, [AclFilter()])):
        assert level_of([command]) == SECURITY_LEVEL


def test_the_sequence_of_the_last_change_is_kept_and_a_command_without_effect_is_no_change() -> None:
    world = World()
    assert security(world.state, SecurityQuery(0)).altered_sequence == 0
    world.do(alter(upsert()))
    changed = world.state.sequence
    world.do(alter(upsert()))
    world.do(DeleteAcls(1, [AclFilter()]))
    assert security(world.state, SecurityQuery(0)).altered_sequence == changed


def test_a_page_ends_by_its_size_and_the_next_begins_behind_it() -> None:
    """Users come by name, then the bindings; each page holds as much as its limit allows."""
    world = World(Limits(answers=AnswerLimits(listed_bytes_max=500)))
    names = [f"user-{number:02}" for number in range(20)]
    world.do(alter(*[upsert(name) for name in reversed(names)]))
    world.do(CreateAcls(1, [binding(f"topic-{number}") for number in range(10)]))
    users: list[User] = []
    bindings: list[AclBinding] = []
    pages = 0
    is_last = False
    while not is_last:
        query = SecurityQuery(0, len(users) + len(bindings), world.state.security_altered_sequence)
        view = security(world.state, query)
        assert len(msgspec.msgpack.encode(view)) < 500 + 300
        users += view.users
        bindings += view.bindings
        pages += 1
        is_last = view.is_last
    assert [each.name for each in users] == names
    assert bindings == list(world.state.bindings)
    assert pages > 5


def test_a_page_of_an_earlier_state_is_the_first_of_the_present_one() -> None:
    world = World()
    world.do(alter(upsert(), upsert("bob")))
    view = security(world.state, SecurityQuery(0, after=1, altered_sequence=world.state.sequence - 1))
    assert [each.name for each in view.users] == ["alice", "bob"]
    known = security(world.state, SecurityQuery(0, 2, world.state.security_altered_sequence))
    assert (known.users, known.bindings, known.is_last) == ([], [], True)


@given(st.text(max_size=255), st.binary(max_size=255))
def test_the_estimated_size_of_an_item_is_no_less_than_its_size(name: str, salt: bytes) -> None:
    user = User(name, [msgspec.structs.replace(verifier(SHA_512), salt=salt)] * 2)
    assert user_bytes(user) >= len(msgspec.msgpack.encode(user))
    each = binding(name, f"User:{name}")
    assert binding_bytes(each) >= len(msgspec.msgpack.encode(each))


def apply_all(states: list[State], commands: list[Command]) -> None:
    for command in commands:
        outcomes = [apply_entry(state, state.sequence + 1, [[command]])[0] for state in states]
        assert all(each == outcomes[0] for each in outcomes)


@given(st.lists(security_commands(usual) | security_commands(wild), max_size=15))
@settings(max_examples=150)
def test_a_snapshot_keeps_users_and_bindings_and_later_entries_have_the_same_effect(steps: list[Command]) -> None:
    whole, resumed = new_state(), new_state()
    for command in steps:
        expected = preview(whole, command)
        before = whole.security_altered_sequence, dict(whole.users), dict(whole.bindings)
        outcomes = [apply_entry(state, state.sequence + 1, [[command]])[0][0][0] for state in (whole, resumed)]
        assert outcomes[0] == outcomes[1]
        after = whole.security_altered_sequence, dict(whole.users), dict(whole.bindings)
        assert expected in (None, outcomes[0])
        assert expected is None or before == after
        assert (before == after) == (whole.security_altered_sequence < whole.sequence)
        resumed = decode_state(encode_state(resumed))
        assert encode_state(resumed) == encode_state(whole)
    assert [*resumed.users.items(), *resumed.bindings] == [*whole.users.items(), *whole.bindings]


def test_a_state_without_users_and_bindings_has_the_bytes_of_the_level_before() -> None:
    """So replicas of the release before and of this one write equal snapshots until the level is reached."""
    state = new_state()
    with_quota = encode_state(state)
    apply_all([state], [alter(upsert()), CreateAcls(1, [binding()])])
    assert encode_state(state) != with_quota
    assert b"users" not in with_quota
    outcomes = apply_entry(state, 3, [[alter(delete()), DeleteAcls(1, [AclFilter()])]])[0]
    assert outcomes == [[PerItem([NONE]), AclsDeleted([[binding()]])]]
    assert b"users" not in encode_state(state)
