"""A console's sources over one state machine, with processes that a test describes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.contracts.messages import Presence
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.schemas.decoding import Decoder
from penstock_console.kafka.sessions import Login
from penstock_console.pages.context import Sources
from penstock_console.survey.polling import Poll, PollLimits
from penstock_console.survey.processes import Process, Reading, SupervisedProcess
from penstock_console.survey.survey import Surveyor
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from tests.testkit.fakes.clock import ManualClock
from tests.unit.console.console_fakes import FakeKafka, WorldSequencers
from tests.unit.sequencer.core.core_world import World

LOGIN = Login("alice", "secret")
READY = {"ready": True, "reason": "", "degraded": {}}
ROLES = ("gateway", "flusher", "sequencer", "cacher", "janitor", "compactor", "console")
ALWAYS = PollLimits(fresh_s=-1, interval_s=0)  # each page makes a new reading


def process(role: str, report: Mapping[str, Any] = READY, zone: str = "z1", **samples: float) -> Process:
    presence = Presence(role, zone, f"{role}-1", "0.1.0", http=f"127.0.0.1:{ROLES.index(role) + 1}")
    return Process(presence, report, {(name, ()): value for name, value in samples.items()})


def reading(processes: Sequence[Process] = (), **more: Any) -> Reading:
    sums = {key: value for each in processes for key, value in each.samples.items()}
    return Reading(**({"taken_s": 0.0, "processes": processes, "sums": sums, "supervised": []} | more))


class Rig:
    """The sources of pages; a test may change the state machine, the processes and the clock."""

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        may_change: bool = False,
        passwords: Mapping[str, str] | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self.world = World(limits)
        self.clock = ManualClock(0.0)
        self.sequencers = WorldSequencers(self.world)
        self.kafka = FakeKafka(self.world, self.clock, passwords)
        self.reading = reading([process(role) for role in ROLES])
        surveyor = Surveyor(self.sequencers, self.clock)
        self.sources = Sources(
            cluster="test",
            clock=self.clock,
            sequencers=cast(SequencerClient, self.sequencers),
            survey=Poll("survey", surveyor.take, self.clock, limits=ALWAYS),
            processes=Poll("processes", self._read, self.clock, limits=ALWAYS),
            kafka=self.kafka,
            decoder=decoder,
            may_change=may_change,
        )

    async def _read(self) -> Reading:
        return self.reading

    def supervise(self, *processes: SupervisedProcess) -> None:
        """Let `penstock up` know these processes."""
        self.reading = msgspec.structs.replace(self.reading, supervised=list(processes))
