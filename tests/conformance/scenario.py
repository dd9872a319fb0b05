"""The types of a scenario and its stage, and helpers for scenarios."""

import contextlib
import copy
import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.conformance.driver import ClientError, Driver
from tests.conformance.logins import ALLOWED_URLS, Login, as_json
from tests.conformance.secured import Secured

POLL_S = 0.1
TIMEOUT_S = 180.0
LINES_SHOWN = 8  # of a tool that failed


class Stage:
    """The surroundings of one scenario with one client: a cluster, drivers, and unique names."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        command: list[str],
        environment: dict[str, str],
        folder: Path,
        write_login: Callable[[Login], str] = as_json,
        secured: Secured | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.login_file: Path | None = None  # of drivers and tools
        self.environment = environment
        self.secured = secured  # for scenarios that need logins
        self._write_login = write_login
        self._name = name
        self._command = command
        self._folder = folder
        self._count = itertools.count()

    def name(self, what: str) -> str:
        """A unique name for a topic, group or transactional id of this scenario."""
        return f"{self._name}.{what}"

    def at(self, address: str, login_file: Path) -> "Stage":
        """The same stage at another listener, where drivers and tools use the login in a file."""
        other = copy.copy(self)
        other.bootstrap, other.login_file = address, login_file
        return other

    def logged_in(self, login: Login) -> "Stage":
        """The same stage with a login."""
        path = self._folder / f"{self._name}.{next(self._count)}.login"
        path.write_text(self._write_login(login))
        other = self.at(login.address, path)
        if login.token_url:  # a Java client asks no other address for tokens
            other.environment = self.environment | {"JDK_JAVA_OPTIONS": f"-D{ALLOWED_URLS}={login.token_url}"}
        return other

    @contextlib.contextmanager
    def driver(self) -> Iterator[Driver]:
        """A new process of the client, which ends with the block."""
        log = self._folder / f"{self._name}.{next(self._count)}.log"
        driver = Driver(self._command, self.bootstrap, log, self.environment, self.login_file)
        try:
            yield driver
        finally:
            driver.close()

    def tool(
        self, main: str, *arguments: str, given: str = "", where: str = "--bootstrap-server", fails: bool = False
    ) -> str:
        """Run one of Kafka's tools to its end, and return its output. With `fails`, the tool must end with an error.

        `main` is the main class, with the subcommand if that stands before the cluster's address.
        """
        login = ["--command-config", str(self.login_file)] if self.login_file else []
        done = subprocess.run(
            [*self._command, *main.split(), where, self.bootstrap, *login, *arguments],
            input=given,
            cwd=self._folder,
            env=os.environ | self.environment,
            timeout=TIMEOUT_S,
            capture_output=True,
            text=True,
        )
        if bool(done.returncode) != fails:
            last_words = " | ".join((done.stdout + done.stderr).strip().splitlines()[-LINES_SHOWN:])
            raise AssertionError(f"exit code {done.returncode}: {last_words} (of {' '.join(arguments)})")
        return done.stdout

    def file(self, name: str, content: str) -> str:
        """The path of a new file for a tool."""
        path = self._folder / self.name(name)
        path.write_text(content)
        return str(path)


class Scenario:
    """A promise, and a function that tests it with a client; some need a cluster with logins."""

    def __init__(
        self, name: str, area: str, promise: str, run: Callable[[Stage], None], *, needs_logins: bool = False
    ) -> None:
        self.name = name
        self.area = area
        self.promise = promise
        self.run = run
        self.needs_logins = needs_logins


def until(condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Call `condition` until it is true, and return its value; an `AssertionError` after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(POLL_S)
    return value


def rejection(client: Driver, name: str, /, **arguments: Any) -> str:
    """Send a request that must be rejected, and return the client's error."""
    try:
        answer = client.ask(name, **arguments)
    except ClientError as error:
        return str(error)
    raise AssertionError(f"{name} was not rejected: {answer}")
