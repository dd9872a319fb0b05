"""The compactor's container merges flushed segments, with its own credentials and its own Java."""

import json

import pytest

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import POLL_S, Project, docker
from tests.testkit.loads.steady_load import steady_account

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

MERGED_TIMEOUT_S = 300.0  # Java starts while all other containers are busy


def test_the_compactor_merges_while_clients_produce(project: Project) -> None:
    with steady_account(project.kafka, "merged") as account:
        account.load.wait_for_more(1)
        project.scale("compactor", 1)
        wait_until(
            lambda: project.metric("compactor", "penstock_compactor_jobs_total", kind="flushed", result="done"),
            MERGED_TIMEOUT_S,
            "the end of a job",
            POLL_S,
        )
        account.load.wait_for_more(1000)
        account.settle()
    assert project.metric("compactor", "penstock_compactor_task_failures_total") == 0


def test_the_compactor_runs_without_privileges_and_sees_its_own_credentials(project: Project) -> None:
    project.scale("compactor", 1)
    container = project.one("compactor")
    facts = json.loads(docker("inspect", container.id))[0]
    assert facts["Config"]["User"] == "10001:10001"
    assert facts["HostConfig"]["ReadonlyRootfs"]
    named = [mount["Name"] for mount in facts["Mounts"] if mount["Destination"] != "/scratch"]
    assert named == [f"{project.name}_compactor-credentials"]
