"""The health of a process that hosts clusters: a cluster that fails makes it degraded, not unready."""

from collections.abc import Callable, Mapping

from penstock.runtime.process.shared_host import JointHealth

FAILED = "cluster"  # the degraded reason of a process with clusters that it cannot serve


class HostedHealth(JointHealth):
    """The health of the process itself, with that of each cluster beside it."""

    def __init__(self, problems: Callable[[], Mapping[str, str]]) -> None:
        """`problems` returns the clusters that are not served, with reasons."""
        super().__init__()
        self._problems = problems

    @property
    def is_ready(self) -> bool:
        """Whether the process takes work: a cluster that fails must not stop the others."""
        return "" in self.roles and self.roles[""].is_ready

    @property
    def degraded(self) -> list[str]:
        return [*super().degraded, *([FAILED] if self._problems() else [])]

    def report(self) -> dict[str, object]:
        """One report for all; a cluster's problem begins with its name."""
        degraded: dict[str, str] = {}
        reports = {name: health.report() for name, health in self.roles.items()}
        for name, report in reports.items():
            found = report["degraded"]
            assert isinstance(found, dict)
            degraded |= {f"{name}: {reason}" if name else reason: text for reason, text in found.items()}
        degraded |= {f"{name}: {FAILED}": f"the cluster is not served: {why}" for name, why in self._problems().items()}
        own = reports.pop("", {"reason": "starting"})
        return {"ready": self.is_ready, "reason": own["reason"], "degraded": degraded, "clusters": reports}
