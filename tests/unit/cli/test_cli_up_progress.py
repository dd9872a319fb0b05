"""`penstock up` reports what it waits for, ends at once for a permanent error, and shows processes that hang."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from penstock.cli.children import Child, ChildSpec
from penstock.cli.ports import Address
from penstock.cli.up.command import check_store
from penstock.cli.up.console import Console
from penstock.cli.up.limits import UpLimits
from penstock.cli.up.progress import Progress, until_available
from penstock.cli.up.supervisor import print_line
from penstock.cli.up.watch import START_S_MAX, Watch
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.messages import Presence
from penstock.objectstore import ObjectStore
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.presence import Directory
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.waiting import TIMEOUT_S, until


def test_a_step_is_reported_when_it_takes_more_than_a_second_and_then_sometimes() -> None:
    reports: list[str] = []
    clock = ManualClock()
    progress = Progress(reports.append, clock=clock)
    for step, now_s in (("a", 0.0), ("a", 0.9), ("b", 1.1), ("b", 2.2), ("b", 3.0), ("b", 12.5), ("c", 13.0)):
        clock.now_s = now_s
        progress.look(step)
    assert reports == ["b (1 s)", "b (11 s)"]


async def test_a_temporary_error_is_reported_once_and_raised_with_the_time_that_was_tried() -> None:
    reports: list[str] = []
    clock = ManualClock()

    async def attempt() -> None:
        raise Unavailable("no answer")

    async def sleep(seconds: float) -> None:
        clock.now_s += seconds

    with pytest.raises(Unavailable, match="no answer; tried for 30 s"):
        await until_available(attempt, reports.append, wait_s=30, retry_s=1, clock=clock, sleep=sleep)
    assert reports == ["no answer; trying again for 30 s"]
    assert clock.now_s >= 28


@pytest.mark.parametrize(("error", "attempts"), [(Unavailable("not yet"), 2), (Invalid("wrong bucket"), 1)])
async def test_a_store_is_tried_again_only_after_a_temporary_error(error: Exception, attempts: int) -> None:
    tried: list[str] = []

    async def open_it(url: str, **_more: object) -> ObjectStore:
        tried.append(url)
        if len(tried) == 1:
            raise error
        return MemoryStore()

    checking = check_store("s3://b", lambda _line: None, limits=UpLimits(store_retry_s=0), open_it=open_it)
    if isinstance(error, Invalid):
        with pytest.raises(Invalid, match="wrong bucket"):
            await checking
    else:
        await checking
    assert len(tried) == attempts


def test_a_line_has_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("ready", ManualClock(1.0, epoch_ms=1_700_000_000_000))
    stamp, _, text = capsys.readouterr().out.partition(" ready")
    assert (len(stamp), stamp[:5], text) == (len("2023-11-14 22:13:21"), "2023-", "\n")


class Heard:
    """A directory and a bus, as far as the watch sees them."""

    is_connected = True

    def __init__(self) -> None:
        self.instances: set[str] = set()
        self.callbacks: list[Callable[[], None]] = []

    def get(self, instance: str) -> Presence | None:
        return Presence("gateway", "z", instance, "0") if instance in self.instances else None

    def live(self, _role: str) -> list[Presence]:
        return []

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


async def test_a_change_of_the_announcements_is_seen_at_once(tmp_path: Path) -> None:
    heard = Heard()
    child = Child(ChildSpec("gateway-1", ["sleep", "600"], {}, tmp_path / "log", roles=("gateway",)), print)
    keeping = asyncio.create_task(child.keep())
    watch = Watch(lambda: [child], cast(Directory, heard), cast(Bus, heard), print)
    watching = asyncio.create_task(watch.run(poll_s=3_600))
    await until(lambda: child.pid is not None and bool(heard.callbacks))
    heard.instances.add(child.instance)
    heard.callbacks[0]()
    await until(lambda: child.was_heard)
    watching.cancel()
    await child.stop(TIMEOUT_S)
    await keeping


async def test_a_process_that_hangs_is_named_and_red(tmp_path: Path) -> None:
    reports: list[str] = []
    clock, heard = ManualClock(), Heard()
    spec = ChildSpec("gateway-2", ["sleep", "600"], {}, tmp_path / "<log>", roles=("gateway",))
    child = Child(spec, reports.append, clock=clock)
    watch = Watch(lambda: [child], cast(Directory, heard), cast(Bus, heard), reports.append)
    console = Console(Address("127.0.0.1", 1), cast(Directory, heard), lambda: [child], str)
    keeping = asyncio.create_task(child.keep())
    await until(lambda: child.pid is not None)

    watch.look(child)
    assert ("starts" in await console.page(), reports) == (True, []), "it may take some time"
    heard.instances.add(child.instance)
    watch.look(child)
    assert 'class="ok">runs<' in await console.page()
    heard.instances.clear()
    watch.look(child)
    watch.look(child)
    page = await console.page()
    assert 'class="bad">hangs<' in page
    assert "gateway-2 is degraded: its process runs, but does not answer" in page
    heard.instances.add(child.instance)
    watch.look(child)
    assert reports == [f"gateway-2 hangs: process {child.pid} runs, but does not answer", "gateway-2 answers again"]

    await child.stop(TIMEOUT_S)
    await keeping
    assert 'class="bad">does not run<' in await console.page()


async def test_a_process_that_is_never_heard_hangs_after_a_minute(tmp_path: Path) -> None:
    reports: list[str] = []
    clock, heard = ManualClock(), Heard()
    child = Child(
        ChildSpec("gateway-1", ["sleep", "600"], {}, tmp_path / "log", roles=("gateway",)), print, clock=clock
    )
    watch = Watch(lambda: [child], cast(Directory, heard), cast(Bus, heard), reports.append)
    keeping = asyncio.create_task(child.keep())
    await until(lambda: child.pid is not None)
    clock.now_s += START_S_MAX + 1
    watch.look(child)
    assert [line.partition(":")[0] for line in reports] == ["gateway-1 hangs"]
    await child.stop(TIMEOUT_S)
    await keeping
