"""The compose project as users run it: `docker compose` on compose.yaml, and the state of its containers."""

import contextlib
import functools
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import NotFound

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
COMMAND_TIMEOUT_S = 300.0
HEALTHY_TIMEOUT_S = 240.0
FREEZE_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0  # of a page; a process that just started or was paused answers late
HTTP_PORT = 8080
POLL_S = 0.25
CLIENT_IMAGE = "penstock-tests/client"


class ComposeError(AssertionError):
    """A docker command failed; its output is the message."""


def docker(*arguments: str, timeout_s: float = COMMAND_TIMEOUT_S, env: dict[str, str] | None = None) -> str:
    """Run a docker command and return its output; `ComposeError` with all its output if the command fails."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=timeout_s, env=env, check=False
    )
    if done.returncode:
        raise ComposeError(f"docker {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def engine() -> Iterator[APIClient]:
    """The engine that `docker` uses. A test that polls does so without a process for each request: these need CPU."""
    with contextlib.closing(APIClient(base_url=_address(), version=_version(), timeout=COMMAND_TIMEOUT_S)) as client:
        yield client


@functools.cache
def _address() -> str:
    return docker("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()


@functools.cache
def _version() -> str:
    return docker("version", "--format", "{{.Server.APIVersion}}").strip()


class Container:
    """The state of one container at one moment."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.id: str = facts["Id"]
        self.name: str = facts["Name"].lstrip("/")
        self.service: str = facts["Config"]["Labels"]["com.docker.compose.service"]
        state = facts["State"]
        self.pid: int = state["Pid"]
        self.status: str = state["Status"]
        self.health: str = state.get("Health", {}).get("Status", "")
        self.restarts: int = facts["RestartCount"]
        self.memory_bytes_max: int = facts["HostConfig"]["Memory"]
        networks = list(facts["NetworkSettings"]["Networks"].values())
        self.address: str = networks[0]["IPAddress"] if networks else ""

    @property
    def is_well(self) -> bool:
        """Whether it runs and, if it has a health check, passes it."""
        return self.status == "running" and self.health in ("", "healthy")

    def metrics(self) -> dict[str, float]:
        """Every sample of the container's metrics page by name, labels as printed."""
        with urllib.request.urlopen(f"http://{self.address}:{HTTP_PORT}/metrics", timeout=ANSWER_TIMEOUT_S) as answer:
            return samples(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`."""
        return total(self.metrics(), name, **labels)

    def logs(self) -> str:
        """The whole log of the container."""
        done = subprocess.run(["docker", "logs", self.id], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


class Project:
    """One compose project with its own name, ports and volumes."""

    def __init__(self, name: str, *files: str, **environment: str) -> None:
        self.name = name
        self.port = free_port()
        self.port_b = free_port()
        self.console_port = free_port()
        self.kafka = f"127.0.0.1:{self.port}"
        self.kafka_b = f"127.0.0.1:{self.port_b}"
        self.started_s = 0.0  # how long the first start took
        self._usual: dict[str, int] = {}  # the number of containers of each service after `heal`
        self._files = files or ("compose.yaml",)
        self._environment = os.environ | {
            "PENSTOCK_KAFKA_PORT": str(self.port),
            "PENSTOCK_KAFKA_PORT_B": str(self.port_b),
            "PENSTOCK_CONSOLE_PORT": str(self.console_port),
            **environment,
        }

    @property
    def network(self) -> str:
        """The network that the containers are in."""
        return f"{self.name}_default"

    def compose(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run `docker compose` on this project."""
        files = [part for file in self._files for part in ("--file", file)]
        return docker(
            "compose", "--project-name", self.name, *files, *arguments, timeout_s=timeout_s, env=self._environment
        )

    def up(self, **scale: int) -> float:
        """Run `docker compose up` with these numbers of containers; the time until all were healthy, in s.

        There is no compactor by default: a JVM in every project would slow down all tests.
        """
        started_s = time.monotonic()
        scale = {"compactor": 0, **scale}
        scales = [part for service, count in scale.items() for part in ("--scale", f"{service}={count}")]
        self.compose("up", "--detach", "--no-build", "--no-recreate", *scales)
        self._wait_for(scale)
        return time.monotonic() - started_s

    def start_first(self, scale: Mapping[str, int]) -> None:
        """Start the containers, and keep their numbers for `heal`."""
        self._usual = dict(scale)
        self.started_s = self.up(**scale)

    def heal(self) -> None:
        """Return when all containers are healthy, also if a failed test froze, killed or removed some of them."""
        left = self.containers()
        if left and all(each.is_well for each in left):
            return
        frozen = [each.id for each in left if each.status == "paused"]
        if frozen:
            docker("unpause", *frozen)
        self.up(**self._usual)

    def scale(self, service: str, count: int) -> None:
        """Set the number of containers of one service; return when all are healthy. Other services are not changed.

        With its dependencies, `up` would run the two services with one task each again, every time.
        """
        numbers = ("--no-deps", "--scale", f"{service}={count}")
        self.compose("up", "--detach", "--no-build", "--no-recreate", *numbers, service)
        self._wait_for({service: count})

    def set_version(self, service: str, tag: str) -> None:
        """Replace the containers of one service by those of another image; return when all are healthy."""
        self._environment["PENSTOCK_VERSION"] = tag
        count = len(self.containers(service))
        self.compose("up", "--detach", "--no-build", "--no-deps", "--scale", f"{service}={count}", service)
        self._wait_for({service: count})

    def start(self, service: str) -> None:
        """Start the killed or stopped containers of a service again, and no others."""
        docker("start", *(each.id for each in self.containers(service)))

    def pause(self, service: str) -> None:
        """Freeze a service. A busy kernel may need several requests."""
        wait_until(lambda: self._froze(service), FREEZE_TIMEOUT_S, f"{service} to freeze", POLL_S)

    def _froze(self, service: str) -> bool:
        with contextlib.suppress(ComposeError):
            self.compose("pause", service)
        return all(each.status == "paused" for each in self.containers(service))

    def _wait_for(self, counts: Mapping[str, int]) -> None:
        """Wait until each service has its number of containers, and all of the project are healthy."""
        wait_until(
            lambda: all(len(self.containers(service)) == count for service, count in counts.items()) and self.is_well,
            HEALTHY_TIMEOUT_S,
            "all containers to be healthy",
            POLL_S,
        )

    @property
    def is_well(self) -> bool:
        """Whether every container runs and is healthy."""
        return all(each.is_well for each in self.containers())

    def containers(self, service: str = "") -> list[Container]:
        """The containers of a service, or of all, by name; without those that end after one task."""
        labels = [f"com.docker.compose.project={self.name}", "com.docker.compose.oneoff=False"]
        if service:
            labels.append(f"com.docker.compose.service={service}")
        found = [Container(facts) for facts in _inspect(labels)]
        return sorted(
            (each for each in found if each.service not in ("credentials", "bucket", "clusters", "administrator")),
            key=lambda each: each.name,
        )

    def one(self, service: str) -> Container:
        """The first container of a service."""
        return self.containers(service)[0]

    def metric(self, service: str, name: str, **labels: str) -> float:
        """The sum of a metric over all containers of a service."""
        return sum(each.metric(name, **labels) for each in self.containers(service))

    def wait_until_well(self) -> float:
        """Return when every container is healthy; the time that it took, in s."""
        started_s = time.monotonic()
        wait_until(lambda: self.is_well, HEALTHY_TIMEOUT_S, "every container to be healthy", POLL_S)
        return time.monotonic() - started_s

    def print_logs(self) -> None:
        """Print the state and the last log lines of each container."""
        print(self.compose("ps", "--all"))
        print(self.compose("logs", "--no-color", "--tail", "60"))

    def down(self) -> None:
        """Remove the whole project with its volumes, without an orderly end of its containers."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "0")


def _inspect(labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The engine's facts on the containers with these labels, without those that end during the query."""
    with engine() as client:
        for each in client.containers(all=True, filters={"label": list(labels)}):
            with contextlib.suppress(NotFound):
                yield client.inspect_container(each["Id"])


@contextlib.contextmanager
def running_project(
    name: str, *files: str, scale: Mapping[str, int] | None = None, **environment: str
) -> Iterator[Project]:
    """A started project with these numbers of containers, removed at the end; a failure prints its logs."""
    project = Project(name, *files, **environment)
    project.down()  # remove what an interrupted run left
    try:
        project.start_first(scale or {})
        yield project
    except BaseException:
        project.print_logs()
        raise
    finally:
        project.down()


class NetworkClient:
    """The steady load in a container of the project's network; it bootstraps there as users do, at gateway:9092."""

    def __init__(
        self, project: Project, topic: str, *, bootstrap: str = "gateway:9092", client_id: str = "inside"
    ) -> None:
        self._project = project
        self._arguments = ("--bootstrap", bootstrap, "--topic", topic, "--client-id", client_id)
        self._name = f"{project.name}-{topic}"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "NetworkClient":
        with contextlib.suppress(ComposeError):  # an interrupted run may have left it
            docker("rm", "--force", self._name)
        docker(
            "run",
            "--detach",
            "--init",
            "--memory",
            "512m",
            "--cpu-shares",  # it must not take CPU from the servers; see LINGER_MS in steady_load.py
            "128",
            "--name",
            self._name,
            "--network",
            self._project.network,
            CLIENT_IMAGE,
            *self._arguments,
        )
        return self

    def __exit__(self, *_: object) -> None:
        print(docker("logs", "--tail", "1", self._name))
        docker("rm", "--force", self._name)

    def reported(self, fact: str) -> Any:
        """The latest value of a fact that the client printed, or None."""
        with engine() as client:
            lines = client.logs(self._name, stderr=False, tail=3).decode().splitlines()
        facts: dict[str, Any] = {}
        for line in lines:
            if line.startswith("{"):
                facts |= json.loads(line)
        return facts.get(fact)

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more records are acknowledged."""
        goal = (self.reported("acknowledged") or 0) + count
        wait_until(
            lambda: (self.reported("acknowledged") or 0) >= goal,
            HEALTHY_TIMEOUT_S,
            f"{count} more acknowledged records",
            POLL_S,
        )

    def settle(self) -> int:
        """Stop the client, and fail if it found a fault; the number of acknowledged records."""
        docker("kill", "--signal", "TERM", self._name)
        code = int(docker("wait", self._name))
        assert code == 0, self.reported("fault") or docker("logs", "--tail", "40", self._name)
        return int(self.reported("settled"))


def build_images(*options: str) -> float:
    """Build every image of the compose file and of the tests' client; the time that it took, in s."""
    started_s = time.monotonic()
    docker(
        "compose",
        "--file",
        "compose.yaml",
        "--file",
        "tests/compose/clients.yaml",
        "--profile",
        "client",
        "--profile",
        "agents",
        "build",
        *options,
        timeout_s=1800,  # the first build of the compactor's image fetches Java and PySpark
    )
    return time.monotonic() - started_s
