"""`penstock agent`: its roles and their settings, and one life for all of them."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.contextvars import get_contextvars

from penstock.cli.agent.app import AgentApp
from penstock.cli.agent.command import make_agent, read_settings
from penstock.cli.agent.hosted import hosted_agents
from penstock.cli.agent.roles import PLACES, Role, load_role, parse_roles
from penstock.clusters.hosting import HostedRole
from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.process.config import HostingConfig
from penstock.runtime.process.garbage import LargeStatePolicy, PolicyOfAnother, ScheduledPolicy
from penstock.runtime.process.life import App
from tests.testkit.waiting import until


@pytest.mark.parametrize(
    ("names", "policy"),
    [
        (["sequencer"], None),
        (["sequencer", "flusher"], ScheduledPolicy),
        (["sequencer", "flusher", "gateway"], PolicyOfAnother),
    ],
)
def test_a_sequencer_beside_other_roles_does_not_keep_their_cycles_from_being_freed(
    names: list[str], policy: type | None
) -> None:
    given: dict[str, dict[str, object]] = {}

    def maker(name: str) -> Callable[..., App]:
        def make(_config: HostingConfig, **parts: object) -> App:
            given[name] = parts
            return FakeRole([], name)

        return make

    roles = [Role(name, HostingConfig, maker(name), HostedRole) for name in names]
    make_agent("agent-1", roles, [HostingConfig()] * len(names))
    found = given["sequencer"].get("garbage")
    assert (None if found is None else type(found)) is policy
    assert not any("garbage" in given[name] for name in names if name != "sequencer")


class FakeRole:
    """A service that records its steps, and fails in one of them."""

    def __init__(self, steps: list[str], name: str, fails_in: str = "", *, runs: bool = True) -> None:
        self._steps = steps
        self._name = name
        self._fails_in = fails_in
        self._runs = runs

    async def open(self) -> None:
        self._step("open")

    async def run(self) -> None:
        self._step("run")
        if self._runs:
            await asyncio.Event().wait()

    async def drain(self) -> None:
        self._step("drain")

    async def close(self) -> None:
        self._step("close")

    def _step(self, step: str) -> None:
        assert get_contextvars()["role"] == self._name
        self._steps.append(f"{step} {self._name}")
        if step == self._fails_in:
            raise Unavailable(f"{self._name} fails")


def agent(steps: list[str], *, cacher: FakeRole | None = None) -> AgentApp:
    middle = cacher or FakeRole(steps, "cacher")
    roles = [("flusher", FakeRole(steps, "flusher")), ("cacher", middle), ("gateway", FakeRole(steps, "gateway"))]
    return AgentApp(roles)


def test_roles_start_before_those_that_need_them() -> None:
    assert parse_roles("gateway,flusher,cacher") == ["flusher", "cacher", "gateway"]
    assert parse_roles("gateway, sequencer") == ["sequencer", "gateway"]


@pytest.mark.parametrize(
    ("text", "why"), [("", "must name"), ("gateway,broker", "'broker'"), ("flusher,flusher", "names flusher twice")]
)
def test_other_roles_are_rejected_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        parse_roles(text)


def test_each_role_has_its_own_name_and_the_settings_that_it_knows() -> None:
    roles = [load_role(name) for name in PLACES]
    argv = ["--flush-interval-ms", "50", "--cache-bytes-max", "33554432", "--zone", "a"]
    whole, configs = read_settings(roles, argv, {"PENSTOCK_INSTANCE": "a1", "PENSTOCK_DEFAULT_PARTITIONS": "3"})
    by_role = {role.name: config for role, config in zip(roles, configs, strict=True)}
    assert (whole.instance, whole.zone) == ("a1", "a")
    assert {name: config.instance for name, config in by_role.items()} == {name: f"a1-{name}" for name in PLACES}
    assert {config.zone for config in configs} == {"a"}
    assert getattr(by_role["flusher"], "flush_interval_ms") == 50  # noqa: B009  the kinds of settings differ
    assert getattr(by_role["cacher"], "cache_bytes_max") == 32 * 2**20  # noqa: B009
    assert getattr(by_role["gateway"], "default_partitions") == 3  # noqa: B009
    assert by_role["gateway"].drain_deadline_ms < whole.drain_deadline_ms, "other roles drain after the gateway"


def test_an_agent_of_many_clusters_has_one_policy_of_garbage_collection() -> None:
    hosted = {name: hosted_roles([name]).garbage for name in ("sequencer", "flusher")}
    assert type(hosted["sequencer"]) is LargeStatePolicy and type(hosted["flusher"]) is PolicyOfAnother
    assert type(hosted_roles(["sequencer", "flusher"]).garbage) is ScheduledPolicy


def hosted_roles(names: list[str]) -> HostedRole:
    roles = [load_role(name) for name in names]
    _, configs = read_settings(roles, ["--clusters", "a,b"], {})
    assert {config.clusters for config in configs} == {"a,b"}
    return hosted_agents(roles, configs)


def test_a_setting_of_no_role_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_settings([load_role("cacher")], ["--flush-interval-ms", "50"], {})
    assert caught.value.code == 2
    assert "flush-interval-ms" in capsys.readouterr().err


async def test_roles_open_in_order_and_drain_and_close_in_the_reverse_order() -> None:
    steps: list[str] = []
    made = agent(steps)
    await made.open()
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    await made.drain()
    running.cancel()
    await asyncio.wait({running})
    await made.close()
    assert [step for step in steps if not step.startswith("run")] == [
        *("open flusher", "open cacher", "open gateway"),
        *("drain gateway", "drain cacher", "drain flusher"),
        *("close gateway", "close cacher", "close flusher"),
    ]


async def test_only_roles_that_began_to_open_are_closed() -> None:
    steps: list[str] = []
    made = agent(steps, cacher=FakeRole(steps, "cacher", "open"))
    with pytest.raises(Unavailable):
        await made.open()
    await made.close()
    assert steps == ["open flusher", "open cacher", "close cacher", "close flusher"]


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_role_whose_close_fails_or_is_cut_short_leaves_no_other_role_open(is_cancelled: bool) -> None:
    """In a process of many clusters, an open role would take requests after the end of its cluster."""
    steps: list[str] = []

    class Hanging(FakeRole):
        async def close(self) -> None:
            await super().close()
            await asyncio.Event().wait()

    made = agent(steps, cacher=Hanging(steps, "cacher") if is_cancelled else FakeRole(steps, "cacher", "close"))
    await made.open()
    closing = asyncio.create_task(made.close())
    await until(lambda: "close cacher" in steps)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled() if is_cancelled else isinstance(closing.exception(), Unavailable)
    assert steps[3:] == ["close gateway", "close cacher", "close flusher"]


async def test_the_failure_of_one_role_ends_the_process() -> None:
    steps: list[str] = []
    made = agent(steps, cacher=FakeRole(steps, "cacher", "run"))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(made.run(), 60)
    assert caught.group_contains(Unavailable, match="cacher fails")


async def test_a_role_that_ends_by_itself_ends_the_process() -> None:
    steps: list[str] = []
    made = agent(steps, cacher=FakeRole(steps, "cacher", runs=False))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(made.run(), 60)
    assert caught.group_contains(RuntimeError, match="ended without a stop signal")
