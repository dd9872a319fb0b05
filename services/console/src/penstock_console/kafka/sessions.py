"""Kafka sessions of logged-in users: one client each, closed when it is not used for a while."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.cli.kafka.profiles import OAUTHBEARER, KafkaSettings
from penstock.cli.kafka.properties import read_properties
from penstock.cli.kafka.session import Session, error_text
from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.clock import Clock

Result = TypeVar("Result")


class KafkaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long answers may take, and how many clients there are."""

    timeout_s: float = 10.0
    # The client tries a refused login again until this time.
    login_s: float = 3.0
    # Each login that gateways check has a thread. Others get an error, so that they do not wait for a flood of them.
    logins_max: int = 16
    threads_max: int = 16  # for users who are logged in
    clients_max: int = 50
    # Pages of messages and live readers have clients and threads of their own, also several of one user.
    readers_max: int = 50
    readers_per_user_max: int = 10  # not without logins, because all are one user then
    idle_s: float = 120.0
    expire_interval_s: float = 10.0


DEFAULT_LIMITS = KafkaLimits()


class Login(msgspec.Struct, frozen=True):
    """The name of a user with its password or its token (OAUTHBEARER); "" where the listener asks for no login."""

    username: str = ""
    password: str = msgspec.field(default="", name="password")
    token: str = ""

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


ANONYMOUS = Login()


class TooManyLogins(Unavailable):
    """Gateways check too many logins at this moment, so this one was not checked."""


class _Client:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()  # a client is for one thread at a time
        self.used_s = 0.0
        self.is_closed = False


class KafkaSessions:
    """The Kafka clients of all users."""

    def __init__(self, settings: KafkaSettings, clock: Clock, *, limits: KafkaLimits = DEFAULT_LIMITS) -> None:
        """`settings` are those of the listener, without a login."""
        self.needs_login = settings.security_protocol.startswith("SASL")
        self.takes_passwords = self.needs_login and settings.sasl_mechanism != OAUTHBEARER
        self._settings = settings
        self._clock = clock
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.threads_max, thread_name_prefix="kafka")
        # No user waits for logins or for long readers.
        self._login_threads = ThreadPoolExecutor(limits.logins_max, thread_name_prefix="kafka-login")
        self._reader_threads = ThreadPoolExecutor(limits.readers_max, thread_name_prefix="kafka-reader")
        self._clients: dict[Login, _Client] = {}
        self._logins = 0
        self._readers: Counter[str] = Counter()  # by user

    async def call(self, login: Login, work: Callable[[Session], Result]) -> Result:
        """The result of `work` in a thread with a client of the user; `Unavailable` for an error of the client.

        After such an error the user gets a new client.
        """
        while True:
            client = self._client(login)
            async with client.lock:
                if client.is_closed:  # by the task before
                    continue
                client.used_s = self._clock.monotonic_s()
                try:
                    return await _in_thread(self._threads, partial(work, client.session))
                except Unavailable:
                    await self._close(login, client)
                    raise

    @contextlib.asynccontextmanager
    async def own_session(self, login: Login) -> AsyncIterator[Session]:
        """A session for one long reader; `Unavailable` if there are too many of them."""
        self._check_readers(login.username)
        self._readers[login.username] += 1
        try:
            session = self._session(login)
            try:
                yield session
            finally:
                await _in_thread(self._reader_threads, session.close)
        finally:
            self._readers -= Counter((login.username,))

    def _check_readers(self, user: str) -> None:
        own_max, all_max = self._limits.readers_per_user_max, self._limits.readers_max
        if user and self._readers[user] >= own_max:
            found = f"{own_max} readers of messages of {user} are open"
        elif self._readers.total() >= all_max:
            found = f"{all_max} readers of messages are open"
        else:
            return
        raise Unavailable(f"{found}: close a page with live messages, or try again in a minute")

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """The result of `work` with a session of its own, in a thread; `Unavailable` for an error of the client."""
        return await _in_thread(self._reader_threads, work)

    async def try_login(self, login: Login, work: Callable[[Session], Result]) -> Result:
        """As `call`, with a client that ends after it; `Unavailable` soon if the gateways refuse the login.

        `TooManyLogins` at once if too many are checked at this moment.
        """
        if self._logins >= self._limits.logins_max:
            raise TooManyLogins(
                f"{self._limits.logins_max} logins are being checked: try again in a few seconds. If this goes on, "
                "look in the console's log for the users of `login_failed`"
            )
        self._logins += 1
        try:
            session = self._session(login, self._limits.login_s)
            try:
                return await _in_thread(self._login_threads, lambda: work(session))
            finally:
                await _in_thread(self._login_threads, session.close)
        finally:
            self._logins -= 1

    async def run(self) -> None:
        """Close idle clients, for ever."""
        while True:
            await asyncio.sleep(self._limits.expire_interval_s)
            now_s = self._clock.monotonic_s()
            for login, client in list(self._clients.items()):
                if not client.lock.locked() and now_s - client.used_s > self._limits.idle_s:
                    await self._close(login, client)

    async def forget(self, login: Login) -> None:
        """Close the client of a user that has logged out."""
        client = self._clients.get(login)
        if client is not None:
            async with client.lock:
                await self._close(login, client)

    async def close(self) -> None:
        """Close all clients."""
        for login in list(self._clients):
            await self.forget(login)
        for threads in (self._threads, self._login_threads, self._reader_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _close(self, login: Login, client: _Client) -> None:
        """Close a client that no thread uses."""
        if self._clients.get(login) is client:
            del self._clients[login]
        if not client.is_closed:
            client.is_closed = True
            await _in_thread(self._threads, client.session.close)

    def _client(self, login: Login) -> _Client:
        client = self._clients.get(login)
        if client is None:
            if len(self._clients) >= self._limits.clients_max:
                raise Unavailable(f"{self._limits.clients_max} users use the console already: try again in a minute")
            client = self._clients[login] = _Client(self._session(login))
        return client

    def _session(self, login: Login, timeout_s: float | None = None) -> Session:
        own = KafkaSettings(
            username=login.username, password=login.password, sasl_mechanism=OAUTHBEARER if login.token else ""
        )
        timeout_s = self._limits.timeout_s if timeout_s is None else timeout_s
        return Session(own.over(self._settings), timeout_s, token=login.token)


def listener_settings(bootstrap: str, command_config: str) -> KafkaSettings:
    """The settings of the listener; `Invalid` if the file cannot be read. Its login, if it has one, is not used."""
    found = read_properties(Path(command_config)) if command_config else KafkaSettings()
    own = KafkaSettings(bootstrap=bootstrap, security_protocol=found.security_protocol or "PLAINTEXT")
    settings = own.over(found)
    return msgspec.structs.replace(settings, username="", password="", password_file="")


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    """The result of `work` in one of the threads; `Unavailable` for an error of the client."""
    return await asyncio.get_running_loop().run_in_executor(threads, _translated, work)


def _translated(work: Callable[[], Result]) -> Result:
    with _client_errors():
        return work()


@contextmanager
def _client_errors() -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except OSError as error:
        raise Unavailable(str(error)) from error
    except Exception as error:  # all errors of kafka-python
        if not type(error).__module__.startswith("kafka."):
            raise
        raise Unavailable(error_text(error)) from error
