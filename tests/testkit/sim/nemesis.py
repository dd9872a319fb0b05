"""The faults of a run: each seed chooses some kinds of fault, which start one after the other and overlap."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from penstock.contracts.levels import PRODUCERS_LEVEL
from tests.testkit.sim.checkers.deletion_checker import SKEW_FAR_MS_MAX
from tests.testkit.sim.environment.bus import SERVERS, BusFaults
from tests.testkit.sim.environment.journal import JournalFaults
from tests.testkit.sim.environment.process import Process
from tests.testkit.sim.environment.services import CLUSTER
from tests.testkit.sim.environment.store import StoreFaults
from tests.testkit.sim.environment.wire import Latency
from tests.testkit.sim.stage import Stage

STEPS_MAX = 400  # callbacks until a process ends
SKEW_MS_MAX = 4_000
DAY_MS = 24 * 3_600_000
LEAP_MS = (DAY_MS, 30 * DAY_MS)  # longer than any expiry
LEAPING_ROLES = ("sequencer", "flusher", "gateway", "janitor")
LEAPS_SHARE = 0.3  # of runs
LEAP_PAUSE_S = (0.2, 3.0)  # between two leaps
WRONG_JANITOR_SHARE = 0.3  # of janitors, whose clocks are wrong from the beginning
MORE_SHARE = 0.3  # of the kinds of fault that were added later, in each run
UNSYNCED_LOOK_S = 0.001
UNSYNCED_LOOKS_MAX = 1_000  # before a power loss
KINDS_SHARE = 0.5  # of all kinds of fault, in each run

LANDING_FAULTS = StoreFaults(later_share=0.01)  # of all landing stores, all the time
LANDING_BROKEN = {
    "hangs": StoreFaults(hung_share=1.0),
    "fails": StoreFaults(failed_share=1.0),
    "loses answers": StoreFaults(unacknowledged_share=1.0),
}
LANDING_FAULT_S = (0.5, 12.0)

# The faults of these kinds are counted, because each of them must happen in some run.
FAULTS_COUNTED = (
    "connections mute or deaf",
    "power losses",
    *(f"landing stores: one {fault}" for fault in (*LANDING_BROKEN, "is slow")),
    *(f"{role} clocks that leap" for role in LEAPING_ROLES),
)

Fault = Callable[[], Awaitable[None]]


class Nemesis:
    """Starts and ends faults until `heal`."""

    def __init__(self, world: Stage) -> None:
        self._world = world
        self._dice: random.Random = world.stream("nemesis")
        self._has_damaged = False
        kinds: list[Fault] = [
            self._kill,
            self._kill_at_step,
            self._kill_role,
            self._stop,
            self._pause,
            self._pause_long,
            self._pause_very_long,
            self._cut,
            self._silence,
            self._sever,
            self._stall_journal,
            self._fill_journal,
            self._break_store,
            self._slow_store,
            self._isolate_gateway,
            self._jump_clock,
            self._damage_snapshot,
        ]
        more: list[Fault] = [self._mute_or_deafen, self._list_late, self._lose_power]
        self._more = world.stream("more-nemesis")
        self._listed_late_s = 0.0
        self._kinds = [kind for kind in kinds if self._dice.random() < KINDS_SHARE] or [self._kill]

        self._kinds += [kind for kind in more if self._more.random() < MORE_SHARE]
        self._leaps = world.stream("clock-leaps")
        self._landing = world.stream("landing-faults")
        self._clocks_leap = self._leaps.random() < LEAPS_SHARE

    def begin(self) -> None:
        """Start faults from now on."""
        self._make_unreliable()
        self._world.record(f"faults {[kind.__name__ for kind in self._kinds]}")
        self._world.infrastructure.create_task(self._run())
        if self._clocks_leap:
            self._world.infrastructure.create_task(self._leap_clocks())
        if self._world.old_replicas:
            self._world.infrastructure.create_task(self._world.upgrade())
        if self._world.store.landing:
            self._world.infrastructure.create_task(self._break_landing_stores())

    def heal(self) -> None:
        """End all faults, repair everything, and restart all dead processes."""
        world = self._world
        world.record("heal")
        for task in world.infrastructure.tasks:
            task.cancel()
        world.hub.faults = BusFaults()
        world.hub.severed.pairs.clear()
        world.hub.severed.is_noticed = False
        world.journal.faults = JournalFaults()
        world.journal.set_available(True)
        world.journal.is_full = False
        world.store.faults = StoreFaults()
        world.store.writes = Latency(0.01)
        for server in world.store.landing:
            server.faults, server.writes = StoreFaults(), Latency()
        world.network.unblock()
        old, world.old_replicas = world.old_replicas, {}
        for process in world.processes:
            process.clock.skew_ms = 0
            process.resume()
            if process.name in old:
                process.kill()
            if process.is_up:
                world.hub.mend(process.connection_name)
            process.cancel_kill()
            process.start()

    def _make_unreliable(self) -> None:
        """Set small faults that happen all the time."""
        world, dice = self._world, self._dice
        more = self._more
        world.hub.faults = BusFaults(
            lost_share=dice.choice((0, 0, 0.002, 0.02)),
            twice_share=dice.choice((0, 0, 0.01)),
            late_share=more.choice((0, 0, 0.002)),
            late_s_max=more.choice((0.3, 3.0)),
        )
        world.journal.faults = JournalFaults(
            lost_share=dice.choice((0, 0, 0.02)),
            unacknowledged_share=dice.choice((0, 0, 0.05)),
            late_share=dice.choice((0, 0, 0.01)),
            late_s_max=dice.choice((1.0, 6.0)),
            stuck_tail_share=dice.choice((0, 0, 0.02)),
            stuck_tail_s_max=dice.choice((0.5, 4.0)),
            replay_s=dice.choice((0, 0.001, 0.01)),
        )
        self._set_store_faults()
        for janitor in world.role("janitor"):
            if dice.random() < WRONG_JANITOR_SHARE:
                janitor.clock.skew_ms = dice.randint(-SKEW_FAR_MS_MAX, SKEW_FAR_MS_MAX)

    def _set_store_faults(self) -> None:
        dice = self._dice
        self._world.store.writes = Latency(dice.choice((0.002, 0.02, 0.1)), dice.choice((0.2, 2.0)), 0.05)
        self._world.store.faults = StoreFaults(
            failed_share=dice.choice((0, 0, 0.05)),
            unacknowledged_share=dice.choice((0, 0, 0.05)),
            throttled_share=dice.choice((0, 0, 0.05)),
            hung_share=dice.choice((0, 0, 0.01)),
            later_share=self._more.choice((0, 0, 0.03)),
            listed_late_s=self._listed_late_s,
        )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._dice.uniform(*self._world.length.fault_pause_s))
            fault = self._dice.choice(self._kinds)
            self._world.record(f"fault {fault.__name__}")
            self._world.infrastructure.create_task(_as_coroutine(fault))

    def _any(self) -> Process:
        return self._dice.choice(self._world.processes)

    async def _wait(self, shortest_s: float, longest_s: float) -> None:
        await asyncio.sleep(self._dice.uniform(shortest_s, longest_s) * self._world.length.fault_duration_scale)

    async def _kill(self) -> None:
        process = self._any()
        process.kill()
        process.restart_later()

    async def _kill_at_step(self) -> None:
        process = self._any()
        if process.is_up:
            process.kill_at_step(self._dice.randint(1, STEPS_MAX))

    async def _kill_role(self) -> None:
        role = self._dice.choice(("sequencer", "flusher", "cacher", "gateway", "janitor", "all"))
        for process in self._world.processes:
            if role == "all" or role in process.roles:
                process.kill()
                process.restart_later()

    async def _stop(self) -> None:
        self._any().stop()

    async def _pause(self) -> None:
        await self._pause_for(0.1, 2.0)

    async def _pause_long(self) -> None:
        await self._pause_for(2.0, 12.0)

    async def _pause_very_long(self) -> None:
        """Pause beyond every lease and timeout of clients, and continue while other faults last."""
        await self._pause_for(6.0, 7.0)

    async def _pause_for(self, shortest_s: float, longest_s: float) -> None:
        process = self._any()
        process.pause()
        await self._wait(shortest_s, longest_s)
        process.resume()

    async def _cut(self) -> None:
        name = self._any().connection_name
        self._world.hub.cut(name)
        await self._wait(0.02, 5.0)
        self._world.hub.mend(name)

    async def _silence(self) -> None:
        """Carry nothing on a connection, and cut it later."""
        name = self._any().connection_name
        self._world.hub.silence(name)
        await self._wait(0.5, 6.0)
        self._world.hub.cut(name)
        await self._wait(0.02, 1.0)
        self._world.hub.mend(name)

    async def _mute_or_deafen(self) -> None:
        """Carry nothing in one direction of a connection, and cut it later."""
        name, is_mute = self._any().connection_name, self._more.random() < 0.5
        self._world.happened["connections mute or deaf"] += 1
        self._world.hub.silence(name, up=is_mute, down=not is_mute)
        await self._wait(0.5, 6.0)
        self._world.hub.cut(name)
        await self._wait(0.02, 1.0)
        self._world.hub.mend(name)

    async def _list_late(self) -> None:
        """Show new keys in lists of the store only after a while."""
        self._listed_late_s = self._more.uniform(0.2, 8.0)
        self._world.store.faults.listed_late_s = self._listed_late_s
        await self._wait(1.0, 8.0)
        self._world.store.faults.listed_late_s = self._listed_late_s = 0.0

    async def _lose_power(self) -> None:
        """Lose the power of everything: unsynced data vanishes, all processes start again.

        An object is unsynced for milliseconds only, so the loss waits for one, but not for ever.
        """
        world = self._world
        for _ in range(UNSYNCED_LOOKS_MAX):
            if world.store.has_unsynced:
                break
            await asyncio.sleep(UNSYNCED_LOOK_S)
        world.happened["power losses"] += 1
        world.journal.lose_power()
        world.store.lose_power()
        world.journal.set_available(False)
        for process in world.processes:
            process.kill()
            process.restart_later()
        await self._wait(0.1, 2.0)
        world.journal.set_available(True)

    async def _sever(self) -> None:
        """Cut one server off from the others; if it led the journal, these elect another leader."""
        world = self._world
        server = self._dice.randrange(SERVERS)
        world.hub.severed.pairs |= {(min(server, other), max(server, other)) for other in range(SERVERS)} - {
            (server, server)
        }
        world.record(f"severed {server}")
        if world.journal_server() == server:
            world.journal.set_available(False)
            await self._wait(0.2, 4.0)
            world.move_journal((server + self._dice.randint(1, SERVERS - 1)) % SERVERS)
            world.journal.set_available(True)
        await self._wait(0.1, 3.0)
        world.hub.severed.is_noticed = True
        await self._wait(0.1, 5.0)
        world.hub.severed.pairs.clear()
        world.hub.severed.is_noticed = False

    async def _stall_journal(self) -> None:
        self._world.journal.set_available(False)
        await self._wait(0.1, 5.0)
        self._world.journal.set_available(True)

    async def _fill_journal(self) -> None:
        """Fill the disks of the journal's servers: it can be read, but takes no entries."""
        self._world.journal.is_full = True
        await self._wait(0.1, 5.0)
        self._world.journal.is_full = False

    async def _break_store(self) -> None:
        self._world.store.faults = StoreFaults(
            failed_share=self._dice.choice((0, 0.5, 1)),
            unacknowledged_share=self._dice.choice((0.3, 1)),
            throttled_share=self._dice.choice((0, 0.5)),
        )
        await self._wait(0.2, 5.0)
        self._set_store_faults()

    async def _slow_store(self) -> None:
        self._world.store.writes = Latency(self._dice.choice((0.3, 1.0)), 8.0, 0.1)
        await self._wait(0.5, 5.0)
        self._set_store_faults()

    async def _isolate_gateway(self) -> None:
        """Carry nothing between clients and a gateway."""
        process = self._dice.choice(self._world.role("gateway"))
        self._world.network.block(process.name)
        await self._wait(0.5, 8.0)
        self._world.network.unblock()

    async def _jump_clock(self) -> None:
        process = self._any()
        skew_ms = SKEW_FAR_MS_MAX if self._dice.random() < 0.5 else SKEW_MS_MAX
        process.clock.skew_ms = self._dice.randint(-skew_ms, skew_ms)

    async def _leap_clocks(self) -> None:
        """Set clocks days forward or back, one after the other, each for a while."""
        dice, world = self._leaps, self._world
        while True:
            await asyncio.sleep(dice.uniform(*LEAP_PAUSE_S) * world.length.fault_duration_scale)
            role = dice.choice([each for each in LEAPING_ROLES if world.role(each)])
            process, direction = dice.choice(world.role(role)), dice.choice(("forward", "back"))
            if role == "sequencer" and direction == "forward" and world.level < PRODUCERS_LEVEL:
                continue  # below this level, producers expire by the wall clock
            world.happened[f"{role} clocks that leap"] += 1
            days_ms = dice.randint(*LEAP_MS)
            process.clock.skew_ms = days_ms if direction == "forward" else -days_ms
            await self._wait(0.5, 6.0)
            process.clock.skew_ms = 0

    async def _break_landing_stores(self) -> None:
        """Let one of three landing stores hang, fail or be slow for a while, then another one. Two are always well."""
        dice, world = self._landing, self._world
        for server in world.store.landing:
            server.faults = LANDING_FAULTS
        while True:
            server = dice.choice(world.store.landing)
            fault = dice.choice(("hangs", "fails", "loses answers", "is slow"))
            world.happened[f"landing stores: one {fault}"] += 1
            world.record(f"landing store {world.store.landing.index(server)} {fault}")
            if fault == "is slow":
                server.writes = Latency(dice.choice((0.3, 1.0)), 8.0, 0.1)
            else:
                server.faults = LANDING_BROKEN[fault]
            await self._wait(*LANDING_FAULT_S)
            server.faults, server.writes = LANDING_FAULTS, Latency()
            await self._wait(0.0, 2.0)

    async def _damage_snapshot(self) -> None:
        """Damage the newest of several snapshots, at most once in a run, as Penstock tolerates no more."""
        keys = self._world.store.keys(f"{CLUSTER}/snapshots/")
        if len(keys) > 1 and not self._has_damaged:
            self._has_damaged = True
            self._world.record(f"damaged {keys[-1]}")
            self._world.store.damage(keys[-1], self._dice)


async def _as_coroutine(fault: Fault) -> None:
    await fault()
