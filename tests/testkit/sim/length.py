"""How long a run is: most are short, as more of them fit into the same time; one in eight is long."""

import dataclasses
from dataclasses import dataclass

from tests.testkit.sim.clients.settings import LONG_CLIENTS, SHORT_CLIENTS, ClientSettings, impatient
from tests.testkit.sim.service_limits import LONG_LIMITS, SHORT_LIMITS, ServiceLimits

LONG_EACH = 8  # seeds: one of them is long by itself
# Suffixes of a run's name, in this order.
LONG_SUFFIX = "-long"  # the run is long although the seed's own run is short
IMPATIENT_SUFFIX = "-impatient"  # all its clients write in transactions and soon ask again


@dataclass(frozen=True)
class Length:
    """The work of clients during faults, and how long it lasts."""

    is_short: bool
    load_s: float
    requests: int  # of each producer
    pace_s: float  # between them
    transactions: tuple[int, int]  # under each id
    fault_pause_s: tuple[float, float]  # between the starts of two faults
    fault_duration_scale: float  # of the duration of faults
    snapshot_entries: tuple[int, ...]
    snapshot_intervals_ms: tuple[int, ...]
    sweep_interval_ms: int  # of janitors
    clients: ClientSettings = LONG_CLIENTS
    services: ServiceLimits = LONG_LIMITS
    is_impatient: bool = False


LONG = Length(
    is_short=False,
    load_s=9.0,
    requests=32,
    pace_s=0.22,
    transactions=(5, 16),
    fault_pause_s=(0.05, 1.75),
    fault_duration_scale=1.0,
    snapshot_entries=(20, 60, 50_000),
    snapshot_intervals_ms=(2_000, 5_000, 30_000),
    sweep_interval_ms=4_000,
)
SHORT = Length(
    is_short=True,
    load_s=4.0,
    requests=14,
    pace_s=0.25,
    transactions=(5, 12),
    fault_pause_s=(0.05, 1.0),
    fault_duration_scale=0.5,
    snapshot_entries=(10, 30, 50_000),
    snapshot_intervals_ms=(1_000, 2_500, 30_000),
    sweep_interval_ms=2_000,
    clients=SHORT_CLIENTS,
    services=SHORT_LIMITS,
)


def length_of(seed: int) -> Length:
    """The length that a seed has by itself."""
    return SHORT if seed % LONG_EACH else LONG


def with_impatient_clients(length: Length) -> Length:
    """The same with clients that write in transactions of the old protocol and soon ask again elsewhere."""
    return dataclasses.replace(length, is_impatient=True, clients=impatient(length.clients))


def name_of(seed: int, length: Length) -> str:
    """The name of a run: its seed, and its differences from the seed's own run."""
    long = "" if length.is_short or not length_of(seed).is_short else LONG_SUFFIX
    return f"{seed}{long}{IMPATIENT_SUFFIX if length.is_impatient else ''}"


def seed_and_length(name: str) -> tuple[int, Length]:
    """The run of that name."""
    usual = name.removesuffix(IMPATIENT_SUFFIX)
    number = usual.removesuffix(LONG_SUFFIX)
    if not number.isascii() or not number.isdigit():
        raise SystemExit(f"a run is a seed, with or without {LONG_SUFFIX} and {IMPATIENT_SUFFIX}: {name!r}")
    seed = int(number)
    length = LONG if usual.endswith(LONG_SUFFIX) else length_of(seed)
    return seed, with_impatient_clients(length) if name.endswith(IMPATIENT_SUFFIX) else length
