"""The parts that several services in one process share: the connection to NATS, one HTTP endpoint, one metrics page."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.local_first import LocalFirstBus, SharedBus
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import connect_nats
from penstock.runtime.process.health import Health, HttpServer, new_registry
from penstock.runtime.process.host import Connection, Http, ServiceHost


def instance_of(process: str, role: str) -> str:
    """The name under which one of several roles of a process announces itself."""
    return f"{process}-{role}"


def sibling_of(instance: str, role: str, other: str) -> str:
    """The name of another role of the same process; "" if the instance is not named like one of several roles."""
    process = instance.removesuffix(f"-{role}")
    return instance_of(process, other) if process != instance else ""


class SharedHost:
    """Makes the hosts of all roles of one process; each role has its own health, metrics and presence.

    `/ready` is 200 when all roles are ready. `/metrics` has the metrics of all roles, with the label `role` on those
    that several roles have. A process that hosts clusters has one role for each (ADR 0059): see `label` and `health`.
    """

    def __init__(
        self,
        instance: str,
        *,
        label: str = "",
        roles_expected: int = 1,
        health: "JointHealth | None" = None,
        connect: Callable[..., Awaitable[Connection]] = connect_nats,
        make_http: Callable[..., Http] = HttpServer,
        make_registry: Callable[[], CollectorRegistry] = new_registry,
        host_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`instance` is the name of the connection; a simulation replaces `connect` and `make_http`.

        `label` is on all metrics of roles whose name is not empty; without it, see above. `roles_expected` is the
        number of roles without which the process is not ready. `host_settings` are further ones of each host.
        """
        self._instance = instance
        self._host_settings = host_settings or {}
        self._connect = connect
        self._make_http = make_http
        self._health = health or JointHealth(roles_expected)
        self._registries: dict[str, CollectorRegistry] = {}
        self._registry = make_registry()
        self._registry.register(_JointMetrics(self._registries, label))
        self._connection: Connection | None = None
        self._bus: SharedBus | None = None
        self._http: Http | None = None
        self._http_users = 0

    def host_maker(self, role: str, on_ready: Callable[[], None] | None = None) -> "HostMaker":
        """Makes the host of a role, as `ServiceHost` does for a process with one role.

        `on_ready` is called each time that the role begins to take work.
        """
        return HostMaker(
            self._host_settings,
            connect=self._connect_role,
            make_http=partial(_RoleHttp, self, role, on_ready or partial(self._health.begin, role)),
            make_registry=lambda: self._registries.setdefault(role, CollectorRegistry()),
        )

    def remove(self, role: str) -> None:
        """Show nothing more of a role that was closed."""
        self._registries.pop(role, None)
        self._health.roles.pop(role, None)

    async def _connect_role(self, url: str, **settings: Any) -> Connection:
        """The first role connects the process; its settings of the connection are those of all roles."""
        if self._connection is None or self._bus is None:
            settings |= {"name": self._instance, "registry": self._registry}
            self._connection = await self._connect(url, **settings)
            self._bus = SharedBus(self._connection.bus)
        return _RoleConnection(self._bus.connect(), self._connection)

    async def open_http(self, role: str, health: "Health | JointHealth", host: str, port: int, token_file: str) -> None:
        """Show the health of a role; the first role opens the endpoint of all."""
        self._health.roles[role] = health
        if self._http is None:
            http = self._make_http(self._health, self._registry, host, port, token_file=token_file)
            await http.open()
            self._http = http
        self._http_users += 1

    @property
    def http_address(self) -> str:
        """The address of the endpoint, `host:port`."""
        assert self._http is not None, "the http server is not open"
        return self._http.address

    async def close_http(self) -> None:
        """Close the endpoint with the last role."""
        self._http_users -= 1
        if self._http is not None and not self._http_users:
            await self._http.close()


class HostMaker:
    """Makes the host of one role of a process. The role may consist of several roles: then `shared` makes theirs."""

    def __init__(self, settings: Mapping[str, Any], **parts: Any) -> None:
        """`settings` of each host; `parts` of `ServiceHost` and `SharedHost`."""
        self._settings = settings
        self._parts = parts

    def __call__(self, *arguments: Any, **settings: Any) -> ServiceHost:
        """The host of the role; the arguments are those of `ServiceHost`."""
        return partial(ServiceHost, **self._parts, **self._settings)(*arguments, **settings)

    def shared(self, instance: str, roles_expected: int) -> SharedHost:
        """The shared parts of `roles_expected` roles."""
        return SharedHost(instance, roles_expected=roles_expected, host_settings=self._settings, **self._parts)


class _RoleConnection:
    """The connection of one role; the process's connection is closed with the last one."""

    def __init__(self, bus: LocalFirstBus, whole: Connection) -> None:
        self._bus = bus
        self._whole = whole

    @property
    def bus(self) -> Bus:
        return self._bus

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        return await self._whole.journal(cluster, create=create, replicas=replicas)

    async def delete_stream(self, name: str) -> None:
        await self._whole.delete_stream(name)

    async def close(self) -> None:
        await self._bus.close()


class _RoleHttp:
    """The endpoint as one role sees it."""

    def __init__(
        self,
        shared: SharedHost,
        role: str,
        on_ready: Callable[[], None],
        health: "Health | JointHealth",
        _: CollectorRegistry,
        host: str,
        port: int,
        token_file: str,
    ) -> None:
        health.on_ready = on_ready
        self._shared = shared
        self._role = role
        self._health = health
        self._where = (host, port, token_file)
        self._is_open = False

    async def open(self) -> None:
        await self._shared.open_http(self._role, self._health, *self._where)
        self._is_open = True

    @property
    def address(self) -> str:
        return self._shared.http_address

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._shared.close_http()


class JointHealth:
    """The health of a process with several roles."""

    def __init__(self, roles_expected: int = 1) -> None:
        self.roles: dict[str, Health | JointHealth] = {}
        self.on_ready: Callable[[], None] | None = None  # called when all expected roles began to take work
        self._roles_expected = roles_expected
        self._begun: set[str] = set()

    @property
    def is_ready(self) -> bool:
        are_all = len(self.roles) >= self._roles_expected
        return are_all and all(health.is_ready for health in self.roles.values())

    def begin(self, role: str) -> None:
        """Record that a role takes work."""
        self._begun.add(role)
        if self.on_ready is not None and len(self._begun) >= self._roles_expected:
            self.on_ready()

    @property
    def degraded(self) -> list[str]:
        return list(dict.fromkeys(name for health in self.roles.values() for name in health.degraded))

    def report(self) -> dict[str, object]:
        """One report for all; a reason begins with its role."""
        reports = {role: health.report() for role, health in self.roles.items()}
        reasons = [f"{role}: {report['reason']}" for role, report in reports.items() if report["reason"]]
        degraded: dict[str, object] = {}
        for report in reports.values():
            degraded |= report["degraded"] if isinstance(report["degraded"], dict) else {}
        return {"ready": self.is_ready, "reason": "; ".join(reasons), "degraded": degraded, "roles": reports}


class _JointMetrics(prometheus_client.registry.Collector):
    """The metrics of all roles on one page."""

    def __init__(self, registries: Mapping[str, CollectorRegistry], label: str) -> None:
        self._registries = registries
        self._label = label

    def collect(self) -> Iterable[Metric]:
        """Every metric once; its samples have the label `role` if several roles have it, or always a label of ours."""
        found: dict[str, dict[str, Metric]] = {}
        for role, registry in self._registries.items():
            for metric in registry.collect():
                found.setdefault(metric.name, {})[role] = metric
        for by_role in found.values():
            if self._label or len(by_role) > 1:
                yield _joined(by_role, self._label or "role")
            else:
                yield next(iter(by_role.values()))


def _joined(by_role: Mapping[str, Metric], label: str) -> Metric:
    first = next(iter(by_role.values()))
    joined = Metric(first.name, first.documentation, first.type)
    for role, metric in by_role.items():
        for sample in metric.samples:
            joined.samples.append(sample._replace(labels={label: role, **sample.labels}) if role else sample)
    return joined
