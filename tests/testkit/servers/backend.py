"""A server for tests, as a child process or as a container: the port, the folder and the verbs are the same."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from docker.errors import APIError, NotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.testkit.loads.pausing import pause_process
from tests.testkit.servers import engine

LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 60.0
FREEZE_TIMEOUT_S = 120.0
FREEZE_RETRY_S = 0.1
POLL_S = 0.001


class Backend(Protocol):
    """A started server. `kill` and `stop` end it and leave its folder."""

    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        ...

    def kill(self) -> None:
        """End it as a crash does, also while it is paused."""
        ...

    def stop(self) -> None:
        """Ask it to end, and wait."""
        ...

    def pause(self) -> None:
        """Return when nothing of the server runs; its connections stay open and get no answers."""
        ...

    def resume(self) -> None:
        """Let the server continue after `pause`."""
        ...

    def log(self) -> str:
        """The output of the server."""
        ...


class Process:
    """A server as a child process that listens on loopback."""

    def __init__(self, command: Sequence[str | Path], folder: Path, log_path: Path) -> None:
        self._log_path = log_path
        with log_path.open("ab") as output:
            self._process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)

    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP."""
        pause_process(self._process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    def log(self) -> str:
        """Both of its outputs."""
        return self._log_path.read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)
        self._process.wait(STOP_TIMEOUT_S)


class Container:
    """A server in a container, with `folder` at the same path, that listens on this machine's loopback.

    It uses the machine's network: the proxy of a published port would accept connections without a server behind it.
    """

    def __init__(self, image: str, command: Sequence[str | Path], folder: Path) -> None:
        testcontainers_config.ryuk_disabled = True  # `engine.remove_leftovers` replaces it and needs no image
        program, *arguments = map(str, command)
        self._container = (
            DockerContainer(image)
            .with_command(arguments)
            .with_volume_mapping(folder, str(folder), "rw")
            .with_kwargs(
                entrypoint=[program],
                network_mode="host",
                user=f"{os.getuid()}:{os.getgid()}",  # so that the user of the tests may remove its files
                working_dir=str(folder),
                labels=engine.labels(),
            )
        )
        try:
            self._container.start()
        except BaseException:
            self._remove()
            raise

    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        self._container.reload()
        return self._container.status in ("running", "paused")

    def kill(self) -> None:
        """SIGKILL; its file system is removed, too."""
        self._remove()

    def stop(self) -> None:
        """SIGTERM."""
        self._container.get_wrapped_container().stop(timeout=int(STOP_TIMEOUT_S))
        self._remove()

    def pause(self) -> None:
        """Freeze the container. A busy kernel may need several requests."""
        deadline_s = time.monotonic() + FREEZE_TIMEOUT_S
        while True:
            try:
                return self._container.get_wrapped_container().pause()
            except APIError:
                if time.monotonic() >= deadline_s:
                    raise
            time.sleep(FREEZE_RETRY_S)

    def resume(self) -> None:
        """Unfreeze the container."""
        self._container.get_wrapped_container().unpause()

    def log(self) -> str:
        """Both of its outputs."""
        return "".join(part.decode(errors="replace") for part in self._container.get_logs())

    def _remove(self) -> None:
        with contextlib.suppress(NotFound):
            self._container.stop()


def image_for(service: str) -> str | None:
    """The image of a service of compose.yaml, or None where tests start the server from its wheel."""
    return engine.image_of(service) if engine.choice().containers else None
