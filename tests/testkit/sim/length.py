"""How long a run is: most are short, as more of them fit into the same time; one in eight is long."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.contracts.configs.topics import GROUP_CONFIGS, SESSION_TIMEOUT_MIN
from penstock.runtime.bus.presence import PresenceLimits

LONG_EACH = 8  # seeds: one of them is long by itself
LONG_SUFFIX = "-long"  # of the name of a seed whose run is long although it would not be by itself


@dataclass(frozen=True)
class Length:
    """What clients do while everything fails, and for how long."""

    is_short: bool
    load_s: float
    requests: int  # of each producer
    pace_s: float  # between them
    transactions: tuple[int, int]  # under each id
    trouble_pause_s: tuple[float, float]  # between the begin of one trouble and the next
    trouble_scale: float  # of the time that troubles last
    snapshot_entries: tuple[int, ...]
    snapshot_intervals_ms: tuple[int, ...]
    scaled: Mapping[str, Any] = field(default_factory=dict)  # what else is another, by name


# Whatever makes others wait takes half of the time, so that it comes to its end while there is trouble.
SHORT_SESSIONS = {SESSION_TIMEOUT_MIN: msgspec.structs.replace(GROUP_CONFIGS[SESSION_TIMEOUT_MIN], default="3000")}
SCALED_SHORT: dict[str, Any] = {
    "penstock.contracts.configs.topics.GROUP_CONFIGS": GROUP_CONFIGS | SHORT_SESSIONS,
    # Half of a stall: looking makes most callbacks of an idle sequencer.
    "penstock_sequencer.replication.stall_detector.LOOK_INTERVAL_S": 0.25,
    "tests.testkit.sim.environment.host.PRESENCE": PresenceLimits(expire_interval_ms=400),
    "penstock_gateway.produce.flush_router.SWEEP_INTERVAL_S": 0.2,
    "penstock_sequencer.replication.level_raiser.LISTEN_S": 2.5,
    "penstock_sequencer.custodian.archiver.INTERVAL_S": 2.0,
    "tests.testkit.sim.clients.clerk.LEFT_S": (1.0, 3.5),
    "tests.testkit.sim.clients.clerk.STALL_S": (0.5, 6.0),
    "tests.testkit.sim.clients.compactor.JOB_S_MAX": 1.0,
    "tests.testkit.sim.clients.compactor.PAUSE_S_MAX": 0.8,
    "tests.testkit.sim.clients.consumer_member.SESSION_TIMEOUT_MS": 3_000,
    "tests.testkit.sim.clients.consumer_member.STALL_S": (1.0, 6.0),
    "tests.testkit.sim.clients.merger.JOB_S_MAX": 1.0,
    "tests.testkit.sim.clients.member.HEARTBEAT_S": 0.5,
    "tests.testkit.sim.clients.member.REBALANCE_TIMEOUT_MS": 3_000,
    "tests.testkit.sim.clients.member.SESSION_TIMEOUT_MS": 3_000,
    "tests.testkit.sim.environment.services.SWEEP_INTERVAL_MS": 2_000,
    "tests.testkit.sim.clients.transactor.REST_S": (0.0, 0.1),
    "tests.testkit.sim.clients.transactor.STALL_S": (0.1, 3.0),
    "tests.testkit.sim.clients.transactor.TIMEOUTS_MS": (1_000, 2_500, 60_000),
}

LONG = Length(
    is_short=False,
    load_s=9.0,
    requests=32,
    pace_s=0.22,
    transactions=(5, 16),
    trouble_pause_s=(0.05, 1.75),
    trouble_scale=1.0,
    snapshot_entries=(20, 60, 50_000),
    snapshot_intervals_ms=(2_000, 5_000, 30_000),
)
SHORT = Length(
    is_short=True,
    load_s=4.0,
    requests=14,
    pace_s=0.25,
    transactions=(5, 12),
    trouble_pause_s=(0.05, 1.0),
    trouble_scale=0.5,
    snapshot_entries=(10, 30, 50_000),
    snapshot_intervals_ms=(1_000, 2_500, 30_000),
    scaled=SCALED_SHORT,
)


def length_of(seed: int) -> Length:
    """The length that a seed has by itself."""
    return SHORT if seed % LONG_EACH else LONG


def name_of(seed: int, length: Length) -> str:
    """How people call a run: its seed, unless it is longer than that is by itself."""
    return str(seed) if length is length_of(seed) else f"{seed}{LONG_SUFFIX}"


def seed_and_length(name: str) -> tuple[int, Length]:
    """The run of that name."""
    number = name.removesuffix(LONG_SUFFIX)
    if not number.isascii() or not number.isdigit():
        raise SystemExit(f"a seed is a number, with or without {LONG_SUFFIX}: {name!r}")
    seed = int(number)
    return seed, LONG if name.endswith(LONG_SUFFIX) else length_of(seed)
