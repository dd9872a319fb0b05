"""`PenstockContainer`: Penstock in a container, by testcontainers-python; it needs the image `penstock/small`.

Clients use a port of the host, which Docker chooses when the container has started. Penstock must advertise that port.
So the container first waits for a script, which `start` makes when it knows the port.
"""

import io
import tarfile
from typing import Any, Self

from penstock.contracts.errors import Invalid, Unavailable

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ModuleNotFoundError as error:
    raise Invalid("PenstockContainer needs testcontainers 4.13 or later: pip install testcontainers") from error

IMAGE = "penstock/small:latest"
KAFKA_PORT, HTTP_PORT = 9092, 8080
FOLDER, SCRIPT = "/tmp", "penstock-start.sh"  # noqa: S108  of the container
READY_S = 60
LOG_LINES = 10  # in an error
UP = f"python -m penstock.cli up --small --insecure --kafka 0.0.0.0:{KAFKA_PORT} --http 0.0.0.0:{HTTP_PORT}"


class PenstockContainer(DockerContainer):
    """A container with everything in it; records are lost with it.

    with PenstockContainer() as penstock:
        producer = Producer({"bootstrap.servers": penstock.get_bootstrap_server()})
    """

    def __init__(self, image: str = IMAGE, *, arguments: str = "", **settings: Any) -> None:
        """`arguments` are more flags of `penstock up`, `settings` those of a `DockerContainer`."""
        super().__init__(image, entrypoint="sh", **settings)
        self._arguments = arguments
        self.with_exposed_ports(KAFKA_PORT, HTTP_PORT)
        waits = f"while [ ! -f {FOLDER}/{SCRIPT} ]; do sleep 0.05; done; exec sh {FOLDER}/{SCRIPT}"
        self.with_command(["-c", waits])

    def get_bootstrap_server(self) -> str:
        """The address for Kafka clients on the host."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(KAFKA_PORT)}"

    def get_console_url(self) -> str:
        """The address of the console's API and of `/metrics`, on the host."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(HTTP_PORT)}"

    def start(self, timeout: int = READY_S) -> Self:
        """Return when clients are served; `Unavailable` with the container's own words if it does not start."""
        super().start()
        try:
            self._put(f"exec {UP} --data /tmp/data --advertise {self.get_bootstrap_server()} {self._arguments}\n")
            ready = LogMessageWaitStrategy("penstock is ready").with_startup_timeout(timeout)
            ready.wait_until_ready(self)
        except (RuntimeError, TimeoutError) as error:
            words = b" ".join(self.get_logs()).decode(errors="replace").split("\n")
            self.stop()
            raise Unavailable(f"penstock does not start: {' '.join(words[-LOG_LINES:]).strip()}") from error
        except BaseException:  # such as Ctrl-C
            self.stop()
            raise
        return self

    def _put(self, script: str) -> None:
        data = script.encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(SCRIPT)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
        self.get_wrapped_container().put_archive(FOLDER, archive.getvalue())
