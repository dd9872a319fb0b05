"""Users log in with passwords that gateways accept; sessions end, are bounded, and are closed by a logout."""

import asyncio
import base64
import threading

import pytest

from penstock.cli.kafka.session import Session
from penstock.contracts.errors import Invalid, Unavailable
from penstock_console.kafka.sessions import ANONYMOUS, KafkaLimits, KafkaSessions, Login, TooManyLogins
from penstock_console.pages.errors import Forbidden
from penstock_console.web.logins import LoginLimits, Logins
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.virtual_time import CountingEntropy
from tests.testkit.waiting import known
from tests.unit.console.console_fakes import SETTINGS, FakeKafka
from tests.unit.sequencer.core.core_world import World

ALICE, BOB = Login("alice", "a"), Login("bob", "b:with:colons")
PASSWORDS = {"alice": "a", "bob": "b:with:colons"}
DEADLINE_S = 10.0
LIMITS = LoginLimits(sessions_max=3, session_s=100, basic_s=10)


class Rig:
    """Logins at gateways that know two users."""

    def __init__(self, passwords: dict[str, str] | None = PASSWORDS, limits: LoginLimits = LIMITS) -> None:
        self.clock = ManualClock()
        self.kafka = FakeKafka(World(), self.clock, passwords)
        self.logins = Logins(self.kafka, self.clock, CountingEntropy(), limits=limits)


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


async def test_a_session_has_its_user_until_its_time_is_over() -> None:
    rig = Rig()
    token = await rig.logins.log_in(ALICE)
    assert len(token) == 64
    assert rig.logins.of_session(token) == ALICE
    rig.clock.now_s += 99
    assert rig.logins.of_session(token) == ALICE
    rig.clock.now_s += 1
    assert rig.logins.of_session(token) is None


@pytest.mark.parametrize("token", ["", "0", "f" * 64])
async def test_a_token_without_a_session_has_no_user(token: str) -> None:
    rig = Rig()
    await rig.logins.log_in(ALICE)
    assert rig.logins.of_session(token) is None


@pytest.mark.parametrize("login", [Login("alice", "b"), Login("mallory", "a"), Login("", ""), Login("alice", "")])
async def test_a_login_that_gateways_refuse_makes_no_session(login: Login) -> None:
    rig = Rig()
    with pytest.raises(Unavailable, match="refuses the login"):
        await rig.logins.log_in(login)
    with pytest.raises(Unavailable, match="refuses the login"):
        await rig.logins.of_header(basic(login.username, login.password))
    assert len({await rig.logins.log_in(ALICE) for _ in range(LIMITS.sessions_max)}) == LIMITS.sessions_max


async def test_a_user_without_the_right_to_describe_the_cluster_is_not_let_in() -> None:
    rig = Rig()
    rig.kafka.session.admin.operations = ["ALTER"]
    with pytest.raises(Forbidden, match="'alice' needs the right to describe the cluster"):
        await rig.logins.log_in(ALICE)


async def test_sessions_are_bounded_and_ended_ones_make_room() -> None:
    rig = Rig()
    for _ in range(LIMITS.sessions_max):
        await rig.logins.log_in(ALICE)
    with pytest.raises(Unavailable, match="3 sessions are open: log out in other browsers"):
        await rig.logins.log_in(BOB)
    rig.clock.now_s += LIMITS.session_s
    assert rig.logins.of_session(await rig.logins.log_in(BOB)) == BOB


async def test_a_user_with_too_many_sessions_loses_the_oldest_one_and_takes_none_from_others() -> None:
    rig = Rig(limits=LoginLimits(sessions_max=5, sessions_per_user_max=4, session_s=100))
    bobs = await rig.logins.log_in(BOB)
    alices = [await rig.logins.log_in(ALICE) for _ in range(6)]
    assert [rig.logins.of_session(each) for each in alices] == [None, None, ALICE, ALICE, ALICE, ALICE]
    assert rig.logins.of_session(bobs) == BOB
    assert rig.kafka.closed == [], "the sessions that are left use the same client"


async def test_the_client_of_a_token_closes_with_its_last_session() -> None:
    rig = Rig(limits=LoginLimits(sessions_per_user_max=2))
    rig.kafka.tokens = ("t1", "t2", "t3")
    logins = [Login("alice", token=each) for each in rig.kafka.tokens]
    for each in logins:
        await rig.logins.log_in(each)
    assert rig.kafka.closed == logins[:1]


async def test_a_logout_ends_one_session_and_the_last_one_closes_the_client() -> None:
    rig = Rig()
    first, second = await rig.logins.log_in(ALICE), await rig.logins.log_in(ALICE)
    await rig.logins.log_out(first)
    assert (rig.logins.of_session(first), rig.logins.of_session(second)) == (None, ALICE)
    assert rig.kafka.closed == []
    await rig.logins.log_out(second)
    await rig.logins.log_out(second)
    await rig.logins.log_out("stranger")
    assert rig.kafka.closed == [ALICE]


async def test_the_password_of_a_header_is_checked_again_after_a_while() -> None:
    rig = Rig()
    header = basic(ALICE.username, ALICE.password)
    checks = []
    for _ in range(6):
        assert await rig.logins.of_header(header) == ALICE
        checks.append(len(rig.kafka.calls))
        rig.clock.now_s += 4
    assert checks == [1, 1, 1, 2, 2, 2]


async def test_a_changed_password_ends_the_old_one_after_a_while() -> None:
    rig = Rig()
    header = basic("alice", "a")
    assert await rig.logins.of_header(header) == ALICE
    rig.kafka.passwords = {"alice": "new"}
    assert await rig.logins.of_header(header) == ALICE
    rig.clock.now_s += LIMITS.basic_s
    with pytest.raises(Unavailable):
        await rig.logins.of_header(header)


async def test_a_right_password_does_not_let_a_wrong_one_in() -> None:
    rig = Rig()
    await rig.logins.of_header(basic("alice", "a"))
    with pytest.raises(Unavailable):
        await rig.logins.of_header(basic("alice", "b"))


async def test_a_password_may_have_colons() -> None:
    assert await Rig().logins.of_header(basic(BOB.username, BOB.password)) == BOB


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic ", "Bearer abc", "Basic !!!", "Basic YWxpY2U=", "Basic /zp4"],
)
async def test_a_header_without_a_login_has_no_user(header: str) -> None:
    assert await Rig().logins.of_header(header) is None


async def test_where_no_login_is_needed_each_user_is_anonymous() -> None:
    rig = Rig(passwords=None)
    assert not rig.logins.are_needed
    assert rig.logins.of_session("") == ANONYMOUS


def test_a_password_is_in_no_text_of_a_login() -> None:
    assert "secret" not in f"{Login('alice', 'secret')} {Login('alice', 'secret')!r}"


class Sessions:
    """The clients of real sessions, which connect only when they are used."""

    def __init__(self, **limits: float) -> None:
        self.clock = ManualClock()
        self.kafka = KafkaSessions(SETTINGS, self.clock, limits=KafkaLimits(**{"clients_max": 2, **limits}))

    async def session(self, login: Login = ALICE) -> Session:
        return await self.kafka.call(login, lambda session: session)


async def test_a_user_keeps_a_client_and_shares_it_with_no_other() -> None:
    sessions = Sessions()
    first = await sessions.session()
    assert await sessions.session() is first
    assert await sessions.session(BOB) is not first
    assert (first.settings.username, first.settings.password) == ("alice", "a")
    with pytest.raises(Unavailable, match="2 users use the console already"):
        await sessions.session(Login("carol", "c"))
    await sessions.kafka.forget(BOB)
    await sessions.session(Login("carol", "c"))
    await sessions.kafka.close()


async def test_long_readers_have_a_limit_of_their_own() -> None:
    sessions = Sessions(readers_max=2)
    async with sessions.kafka.own_session(ALICE), sessions.kafka.own_session(ALICE):
        with pytest.raises(Unavailable, match="2 readers of messages are open"):
            async with sessions.kafka.own_session(BOB):
                pass
        await sessions.session(BOB)
        assert await sessions.kafka.try_login(BOB, lambda _: "in") == "in"
    async with sessions.kafka.own_session(BOB):
        pass
    await sessions.kafka.close()


async def test_one_user_cannot_take_all_long_readers() -> None:
    sessions = Sessions(readers_per_user_max=2)
    async with sessions.kafka.own_session(ALICE), sessions.kafka.own_session(ALICE):
        with pytest.raises(Unavailable, match="2 readers of messages of alice are open: close a page"):
            async with sessions.kafka.own_session(ALICE):
                pass
        async with sessions.kafka.own_session(BOB):
            pass
    async with sessions.kafka.own_session(ALICE):
        pass
    own = sessions.kafka.own_session
    async with own(ANONYMOUS), own(ANONYMOUS), own(ANONYMOUS):  # all users of a console without logins
        pass
    await sessions.kafka.close()


async def test_an_error_of_a_socket_is_reported_as_unavailable_and_the_user_gets_a_new_client() -> None:
    sessions = Sessions()
    first = await sessions.session()

    def fail(_session: Session) -> None:
        raise ConnectionResetError("the gateway has closed the connection")

    with pytest.raises(Unavailable, match="the gateway has closed the connection"):
        await sessions.kafka.call(ALICE, fail)
    assert await sessions.session() is not first
    await sessions.kafka.close()


async def test_logged_in_users_do_not_wait_for_logins() -> None:
    """A flood of wrong passwords waits for gateways for seconds each."""
    sessions, end = Sessions(threads_max=2), threading.Event()
    logins = [asyncio.create_task(sessions.kafka.try_login(BOB, lambda _: end.wait())) for _ in range(2)]
    try:
        await asyncio.wait_for(sessions.session(), DEADLINE_S)
    finally:
        end.set()
        await asyncio.gather(*logins)
        await sessions.kafka.close()


async def test_a_login_beyond_those_that_are_being_checked_gets_an_error_at_once() -> None:
    sessions, end = Sessions(logins_max=2), threading.Event()
    logins = [asyncio.create_task(sessions.kafka.try_login(BOB, lambda _: end.wait())) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyLogins, match="2 logins are being checked: try again in a few seconds"):
        await sessions.kafka.try_login(ALICE, lambda _: "in")
    end.set()
    await asyncio.gather(*logins)
    assert await sessions.kafka.try_login(ALICE, lambda _: "in") == "in"
    await sessions.kafka.close()


async def test_logged_in_users_and_logins_do_not_wait_for_long_readers() -> None:
    sessions, end = Sessions(threads_max=2), threading.Event()

    async def read() -> None:
        async with sessions.kafka.own_session(ALICE):
            await sessions.kafka.in_thread(end.wait)

    readers = [asyncio.create_task(read()) for _ in range(2)]
    try:
        await asyncio.wait_for(sessions.session(BOB), DEADLINE_S)
        assert await asyncio.wait_for(sessions.kafka.try_login(BOB, lambda _: "in"), DEADLINE_S) == "in"
    finally:
        end.set()
        await asyncio.gather(*readers)
        await sessions.kafka.close()


def fail(error: Exception) -> None:
    raise error


async def test_an_error_of_the_client_gives_the_user_a_new_one_and_a_rejection_does_not() -> None:
    sessions = Sessions()
    first = await sessions.session()
    with pytest.raises(Invalid):
        await sessions.kafka.call(ALICE, lambda _: fail(Invalid("there is no such topic")))
    assert await sessions.session() is first
    with pytest.raises(Unavailable):
        await sessions.kafka.call(ALICE, lambda _: fail(Unavailable("gone")))
    assert await sessions.session() is not first
    await sessions.kafka.close()


async def test_no_request_uses_a_client_that_the_request_before_has_closed() -> None:
    sessions = Sessions()
    closed: list[Session] = []
    used: list[bool] = []

    def use(session: Session) -> None:
        used.append(session in closed)
        closed.append(session)
        raise Unavailable("gone")

    found = await asyncio.gather(*(sessions.kafka.call(ALICE, use) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in found] == [Unavailable] * 5
    assert used == [False] * 5
    await sessions.kafka.close()


async def test_an_idle_client_is_closed_and_makes_room_for_another_user() -> None:
    sessions = Sessions(clients_max=1, idle_s=100, expire_interval_s=0)
    task = asyncio.create_task(sessions.kafka.run())
    await sessions.session()
    sessions.clock.now_s += 101
    await known(lambda: sessions.session(BOB))
    task.cancel()
    await sessions.kafka.close()
