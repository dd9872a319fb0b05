"""`penstock up --small`: services in the supervisor's process, kept alive like a child process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.children import Child, ChildLimits, ChildSpec
from penstock.cli.up.hosted import KILLED, Hosting
from penstock.runtime.process.config import BAD_SETTINGS_EXIT_CODE
from penstock.runtime.process.life import INVALID_EXIT_CODE
from tests.testkit.servers.ports import free_port
from tests.testkit.waiting import TIMEOUT_S, until

# Each of these is slow to import, and serves few deployments.
SLOW = {"rich", "pygments", "jwt", "cryptography.x509", "kafka", "pyspark", "aioboto3", "opentelemetry", "fastavro"}
IMPORTS = """
import sys
from penstock.cli.up.hosted import load_role
from penstock.cli.agent.roles import PLACES
import penstock.cli.up
for name in PLACES:
    load_role(name)
print(*sys.modules)
"""

SERVICES = ("gateway", "flusher", "sequencer", "cacher", "compactor", "janitor")


def spec_of(tmp_path: Path, **settings: str) -> ChildSpec:
    env = {"PENSTOCK_NATS_URL": f"nats://127.0.0.1:{free_port()}", "PENSTOCK_STORE_URL": f"file://{tmp_path}/objects"}
    return ChildSpec("agent-1", [], env | settings, tmp_path / "agent.log", ("flusher", "cacher"))


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"PENSTOCK_RECENT_BYTES_MAX": "much"}, BAD_SETTINGS_EXIT_CODE, "PENSTOCK_RECENT_BYTES_MAX must be"),
        ({"PENSTOCK_HTTP_HOST": "300.0.0.1"}, INVALID_EXIT_CODE, "cannot listen on 300.0.0.1"),
    ],
)
async def test_roles_that_cannot_start_end_with_the_code_and_the_words_of_a_process(
    tmp_path: Path, settings: dict[str, str], code: int, words: str
) -> None:
    reports: list[str] = []
    hosting = Hosting()
    limits = ChildLimits(restart_delay_ms_min=1)
    child = Child(spec_of(tmp_path, **settings), reports.append, limits=limits, start=hosting.start)
    keeping = asyncio.create_task(child.keep())
    await until(lambda: child.restarts > 1)
    assert (child.last_code, words in child.error) == (code, True)
    await child.stop(TIMEOUT_S)
    await keeping
    hosting.close()
    assert f"died (exit code {code})" in reports[0]


async def test_roles_that_wait_for_a_server_are_stopped_and_killed(tmp_path: Path) -> None:
    hosting = Hosting()
    stopped = await hosting.start(spec_of(tmp_path), spec_of(tmp_path).env)
    stopped.terminate()
    assert await stopped.wait() == 0
    killed = await hosting.start(spec_of(tmp_path), spec_of(tmp_path).env)
    killed.kill()
    assert await killed.wait() == KILLED
    hosting.close()


def imported_by(program: str) -> set[str]:
    """The modules that a new process has after this program."""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(found.stdout.split())


def test_a_start_imports_nothing_that_only_few_deployments_need() -> None:
    modules = imported_by(IMPORTS)
    assert "penstock_gateway.app" in modules
    assert SLOW & modules == set()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_nothing_that_only_few_deployments_need(service: str) -> None:
    modules = imported_by(f"import sys, penstock_{service}.__main__; print(*sys.modules)")
    assert f"penstock_{service}.app" in modules
    assert SLOW & modules == set()
