"""A Chromium process and its DevTools connection, which sends one command at a time."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.debian import chromium

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0
# Chromium's sandbox needs rights that containers do not give; these tests open pages of this repository only.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class DevToolsError(Exception):
    """Chromium rejects a command."""


class DevTools:
    """The connection to a Chromium. Events are kept in the order of their arrival, by session."""

    def __init__(self, address: str) -> None:
        self.events: dict[str, list[dict[str, Any]]] = {}
        self._loop = asyncio.new_event_loop()
        self._sent = 0
        self._client, self._socket = self._loop.run_until_complete(_connect(address))

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The result of a command; `DevToolsError` if there is none."""
        return self._loop.run_until_complete(self._call(method, session, parameters))

    async def _call(self, method: str, session: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._sent += 1
        command = {"id": self._sent, "method": method, "params": parameters}
        await self._socket.send_json(command | ({"sessionId": session} if session else {}))
        while True:
            message = await self._socket.receive_json(timeout=ANSWER_TIMEOUT_S)
            if message.get("id") != self._sent:
                self.events.setdefault(message.get("sessionId", ""), []).append(message)
            elif "error" in message:
                raise DevToolsError(f"{method}: {message['error']['message']}")
            else:
                found: dict[str, Any] = message["result"]
                return found

    def close(self) -> None:
        """End the connection."""
        self._loop.run_until_complete(self._socket.close())
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


async def _connect(address: str) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    client = aiohttp.ClientSession()
    return client, await client.ws_connect(address, max_msg_size=0)


@contextmanager
def running_chromium() -> Iterator[DevTools]:
    """A started Chromium with an empty profile, ended at the end."""
    program, environment = chromium()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            port_file = Path(profile, "DevToolsActivePort")
            lines = wait_until(lambda: _lines(port_file), START_TIMEOUT_S, "the port of Chromium")
            devtools = DevTools(f"ws://127.0.0.1:{lines[0]}{lines[1]}")
            try:
                yield devtools
            finally:
                devtools.close()
        finally:
            process.terminate()
            process.wait(START_TIMEOUT_S)


def _lines(path: Path) -> list[str]:
    """Both lines of the file, nothing before they are there."""
    found = path.read_text().splitlines() if path.exists() else []
    return found if len(found) == 2 else []
