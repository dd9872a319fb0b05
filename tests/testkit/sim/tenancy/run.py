"""Runs one seed of a deployment with several virtual clusters from beginning to end."""

from tests.testkit.sim.nemesis import Nemesis
from tests.testkit.sim.tenancy.deployment import Deployment

START_TIMEOUT_S = 30.0
LOAD_S = 14.0
CREATED_AGAIN_S = 5.0  # with faults, after the first cluster of a name is gone
OPERATORS_TIMEOUT_S = 300.0
SETTLE_TIMEOUT_S = 90.0
QUIET_S = 3.0  # after everything, for objects that come late
STOP_TIMEOUT_S = 30.0
LOOK_S = 0.05
ROLES_TO_STOP = ("janitor", "gateway", "flusher", "sequencer")


def simulate(deployment: Deployment) -> None:
    """Make the run."""
    for process in deployment.processes:
        process.start()
    deployment.begin_operators()
    were_created = lambda: all(history.lives for history in deployment.histories.values())  # noqa: E731
    if not deployment.until("the first clusters", were_created, START_TIMEOUT_S, LOOK_S):
        return
    _suffer(deployment, LOAD_S)
    if not deployment.until("the operators", lambda: deployment.is_operated, OPERATORS_TIMEOUT_S, LOOK_S):
        return
    _suffer(deployment, CREATED_AGAIN_S)
    deployment.calm_operators()
    if _settle(deployment):
        _stop(deployment)


def _suffer(deployment: Deployment, duration_s: float) -> None:
    nemesis = Nemesis(deployment)
    nemesis.begin()
    deployment.run_for(duration_s)
    nemesis.heal()


def _settle(deployment: Deployment) -> bool:
    """Wait until all clients have produced and read everything; whether all guarantees hold."""
    lives = deployment.lives
    if not deployment.until("the topics", lambda: all(life.has_topic for life in lives), SETTLE_TIMEOUT_S, LOOK_S):
        return False
    for life in lives:
        life.finish_soon()
    if not deployment.until("producers", lambda: all(life.is_produced for life in lives), SETTLE_TIMEOUT_S, LOOK_S):
        return False
    for life in lives:
        life.audit()
    if not deployment.until("readers", lambda: all(life.is_read for life in lives), SETTLE_TIMEOUT_S, LOOK_S):
        return False
    for life in lives:
        life.oracle.check_objects()
    deployment.run_for(QUIET_S)
    return not deployment.failures


def _stop(deployment: Deployment) -> None:
    """End the clients, then stop the services."""
    for life in deployment.lives:
        life.end_clients()
    for role in ROLES_TO_STOP:
        processes = deployment.role(role)
        for process in processes:
            process.is_wanted = False
            process.stop()
        is_down = lambda processes=processes: not any(process.is_up for process in processes)  # noqa: E731
        if not deployment.until(f"the end of each {role}", is_down, STOP_TIMEOUT_S):
            return
