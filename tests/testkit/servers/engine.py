"""Where tests take NATS and S3 from: containers where a Docker engine on this machine answers, the wheels otherwise."""

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
ENGINE_TIMEOUT_S = 60.0  # whoever has a socket answers, on a busy machine late
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
    """The choice of this test run; see `choose`."""
    return choose(Engine())


def choose(engine: "Engine") -> Choice:
    """What PENSTOCK_TESTS_CONTAINERS asks for and this machine allows; `ValueError` if it cannot be had."""
    wanted = os.environ.get(SETTING, "auto")
    if wanted not in CHOICES:
        raise ValueError(f"{SETTING} is {wanted!r}; it may be {', '.join(CHOICES)}")
    if wanted == "never":
        return Choice(False, f"nats and s3 from wheels: {SETTING} is never")
    missing = _what_is_missing(engine)
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
        """The name, if the engine has the image or can pull it."""
        try:
            with contextlib.closing(_client(PULL_TIMEOUT_S)) as client:
                if not client.images.list(name=name):
                    client.images.pull(name)
                return name
        except (DockerException, RequestException):
            return None

    def shares_the_network(self) -> bool:
        """Whether containers can use this machine's network.

        They cannot in the virtual machine of Docker Desktop, nor in the network of a rootless engine.
        """
        with contextlib.closing(_client(ENGINE_TIMEOUT_S)) as client:
            facts = client.info()
        return facts["OperatingSystem"] != "Docker Desktop" and "name=rootless" not in facts["SecurityOptions"]


def remove_leftovers(*, own: bool) -> None:
    """Remove the containers of test runs on this machine that are over and, with `own`, those of this one."""
    with contextlib.closing(_client(REMOVE_TIMEOUT_S)) as client:
        for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True):
            host, _, pid = container.labels[OWNER_LABEL].rpartition("/")
            if host == platform.node() and (own if int(pid) == os.getpid() else not _is_alive(int(pid))):
                with contextlib.suppress(DockerException, RequestException):  # somebody else was quicker
                    container.remove(force=True, v=True)


def labels() -> dict[str, str]:
    """What tells a container that this test run started."""
    return {OWNER_LABEL: f"{platform.node()}/{os.getpid()}"}


def _what_is_missing(engine: "Engine") -> str | None:
    if not os.environ.get("DOCKER_HOST", DEFAULT_HOST).startswith(SCHEME):
        return "the docker engine is not on this machine"  # its containers see other folders and ports
    if not engine.answers():
        return "no docker engine answers"
    if not engine.shares_the_network():
        return "the docker engine's containers cannot share this machine's network"
    for name in map(image_of, SERVICES):
        if engine.ensure_image(name) is None:
            return f"image {name} is not to be had"
    return None


def _listens(path: str) -> bool:
    """Asked first, because the docker client leaves its socket open if nobody listens."""
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
        return True  # it is another user's
    return True
