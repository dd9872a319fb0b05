"""The choice between containers and wheels for the servers of tests."""

import subprocess
import sys
from pathlib import Path

import docker
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.testkit.servers import engine
from tests.testkit.servers.engine import Choice, Engine, choose


class WithoutNats(Engine):
    """An engine that answers, but has no image of nats."""

    def answers(self) -> bool:
        return True

    def shares_the_network(self) -> bool:
        return True

    def ensure_image(self, name: str) -> str | None:
        return None if name.startswith("nats") else name


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


def test_the_images_are_those_of_the_compose_file(tmp_path: Path) -> None:
    compose = tmp_path / "compose.yaml"
    compose.write_text("services: {nats: {image: 'nats:1-alpine'}, s3: {image: some/s3:2}}\n")
    assert [engine.image_of(service, compose) for service in engine.SERVICES] == ["nats:1-alpine", "some/s3:2"]


@pytest.mark.usefixtures("nowhere")
def test_servers_come_from_wheels_if_no_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engine.SETTING, raising=False)
    assert not Engine().answers()
    assert choose(Engine()) == Choice(False, "nats and s3 from wheels: no docker engine answers")


def test_servers_come_from_wheels_if_the_engine_is_on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engine.SETTING, raising=False)
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert choose(Engine()) == Choice(False, "nats and s3 from wheels: the docker engine is not on this machine")


def test_servers_come_from_wheels_if_an_image_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engine.SETTING, raising=False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    why = f"nats and s3 from wheels: image {engine.image_of('nats')} is not available"
    assert choose(WithoutNats()) == Choice(False, why)


def test_servers_come_from_wheels_if_containers_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine.SETTING, "never")
    assert not choose(Engine()).containers


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [("always", "is always, but no docker engine answers"), ("perhaps", "it may be auto, always, never")],
)
def test_an_impossible_choice_is_reported_before_any_test_runs(wanted: str, sentence: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", __file__],
        env={"PATH": "/usr/bin:/bin", "DOCKER_HOST": "unix:///nowhere/docker.sock", engine.SETTING: wanted},
        cwd=engine.COMPOSE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert sentence in ran.stderr


def container(owner: str) -> DockerContainer:
    testcontainers_config.ryuk_disabled = True
    host = engine.labels()[engine.OWNER_LABEL].rpartition("/")[0]
    kwargs = {"entrypoint": ["sleep", "600"], "labels": {engine.OWNER_LABEL: f"{host}/{owner}"}}
    return DockerContainer(engine.image_of("nats")).with_kwargs(**kwargs).start()


if engine.choice().containers:

    def test_the_engine_reports_whether_it_has_an_image() -> None:
        name = engine.image_of("nats")
        assert Engine().ensure_image(name) == name
        assert Engine().ensure_image("registry.invalid/none:1") is None

    def test_containers_of_a_killed_run_are_removed_and_those_of_a_live_run_stay() -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            left, used = container(str(ended.pid)), container(str(other.pid))
            try:
                engine.remove_leftovers(own=False)
                with pytest.raises(docker.errors.NotFound):
                    left.reload()
                used.reload()
                assert used.status == "running"
            finally:
                used.stop()
                left.get_docker_client().client.close()
