"""The source of NATS and S3 for tests: containers if a Docker engine on this machine answers, else the wheels."""

import contextlib
import functools
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

import docker
import yaml
from docker.errors import DockerException
from requests.exceptions import RequestException

SETTING = "PENSTOCK_TESTS_CONTAINERS"
CHOICES = ("auto", "always", "never")
OWNER_LABEL = "penstock.tests.owner"  # HOST/PID of the test run that started a container
SERVICES = ("nats", "s3")
ENGINE_TIMEOUT_S = 60.0  # an engine with a socket answers, but late on a busy machine
REMOVE_TIMEOUT_S = 60.0
PULL_TIMEOUT_S = 60.0  # without a byte
COMPOSE = Path(__file__).parents[3] / "compose.yaml"
SCHEME = "unix://"
DEFAULT_HOST = f"{SCHEME}/var/run/docker.sock"


@dataclass(frozen=True)
class Choice:
    """Whether servers come from containers, and why."""

    containers: bool
    why: str

    def __str__(self) -> str:
        return self.why


def image_of(service: str, compose: Path = COMPOSE) -> str:
    """The image that a compose file, by default compose.yaml, names for a service."""
    return str(yaml.safe_load(compose.read_text())["services"][service]["image"])


@functools.cache
def choice() -> Choice:
    """The result of `choose` for this test run."""
    return choose(Engine())


def choose(engine: "Engine") -> Choice:
    """Choose by PENSTOCK_TESTS_CONTAINERS and the machine's abilities; `ValueError` if the machine cannot."""
    wanted = os.environ.get(SETTING, "auto")
    if wanted not in CHOICES:
        raise ValueError(f"{SETTING} is {wanted!r}; it may be {', '.join(CHOICES)}")
    if wanted == "never":
        return Choice(False, f"nats and s3 from wheels: {SETTING} is never")
    missing = _obstacle(engine)
    if missing is None:
        return Choice(True, "nats and s3 from containers")
    if wanted == "always":
        raise ValueError(f"{SETTING} is always, but {missing}")
    return Choice(False, f"nats and s3 from wheels: {missing}")


class Engine:
    """The Docker engine of this machine, if there is one."""

    def answers(self) -> bool:
        """Whether a Docker engine answers on a socket of this machine."""
        if not _listens(os.environ.get("DOCKER_HOST", DEFAULT_HOST).removeprefix(SCHEME)):
            return False
        try:
            with contextlib.closing(_client(ENGINE_TIMEOUT_S)) as client:
                return bool(client.ping())
        except (DockerException, RequestException):
            return False

    def ensure_image(self, name: str) -> str | None:
        """The image's name if the engine has the image or can pull it, else None."""
        try:
            with contextlib.closing(_client(PULL_TIMEOUT_S)) as client:
                if not client.images.list(name=name):
                    client.images.pull(name)
                return name
        except (DockerException, RequestException):
            return None

    def shares_the_network(self) -> bool:
        """Whether containers can use this machine's network.

        They cannot with Docker Desktop, which has a virtual machine, nor with a rootless engine.
        """
        with contextlib.closing(_client(ENGINE_TIMEOUT_S)) as client:
            facts = client.info()
        return facts["OperatingSystem"] != "Docker Desktop" and "name=rootless" not in facts["SecurityOptions"]


def remove_leftovers(*, own: bool) -> None:
    """Remove the containers of this machine's ended test runs and, with `own`, those of this test run."""
    with contextlib.closing(_client(REMOVE_TIMEOUT_S)) as client:
        for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True):
            host, _, pid = container.labels[OWNER_LABEL].rpartition("/")
            if host == platform.node() and (own if int(pid) == os.getpid() else not _is_alive(int(pid))):
                with contextlib.suppress(DockerException, RequestException):  # another test run was faster
                    container.remove(force=True, v=True)


def labels() -> dict[str, str]:
    """The labels of the containers that this test run starts."""
    return {OWNER_LABEL: f"{platform.node()}/{os.getpid()}"}


def _obstacle(engine: "Engine") -> str | None:
    """Why this machine cannot run the containers; None if it can."""
    if not os.environ.get("DOCKER_HOST", DEFAULT_HOST).startswith(SCHEME):
        return "the docker engine is not on this machine"  # its containers see other folders and ports
    if not engine.answers():
        return "no docker engine answers"
    if not engine.shares_the_network():
        return "the docker engine's containers cannot share this machine's network"
    for name in map(image_of, SERVICES):
        if engine.ensure_image(name) is None:
            return f"image {name} is not available"
    return None


def _listens(path: str) -> bool:
    """Whether a socket has a listener. Checked first: the docker client leaks its socket if there is none."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def _client(timeout_s: float) -> docker.DockerClient:
    return docker.from_env(timeout=timeout_s)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # the process belongs to another user
    return True
