"""The lengths of runs. Most runs are short, as more of them fit into the same time; one in eight is long."""

import dataclasses
from dataclasses import dataclass

from tests.testkit.sim.clients.settings import LONG_CLIENTS, SHORT_CLIENTS, ClientSettings, with_short_timeouts
from tests.testkit.sim.service_limits import LONG_LIMITS, SHORT_LIMITS, ServiceLimits

LONG_EACH = 8  # seeds: one of them is long by itself
# Suffixes of a run's name, in this order.
NEIGHBOUR_SUFFIX = "-neighbour"  # the run's sequencers also host a second virtual cluster
LONG_SUFFIX = "-long"  # the run is long although the seed's own run is short
SHORT_TIMEOUTS_SUFFIX = "-short-timeouts"  # the clients write in transactions and have short timeouts
CLUSTERS_SUFFIX = "-clusters"  # alone: the run is one of `tests.testkit.sim.tenancy`


@dataclass(frozen=True)
class Length:
    """The work of clients during faults, and how long it lasts."""

    is_short: bool
    load_s: float
    requests: int  # of each producer
    request_interval_s: float
    transactions: tuple[int, int]  # under each transactional id
    fault_pause_s: tuple[float, float]  # between the starts of two faults
    fault_duration_scale: float  # of the duration of faults
    snapshot_entries: tuple[int, ...]
    snapshot_intervals_ms: tuple[int, ...]
    sweep_interval_ms: int  # of janitors
    clients: ClientSettings = LONG_CLIENTS
    services: ServiceLimits = LONG_LIMITS
    has_short_timeouts: bool = False
    audit: str = "off"  # the setting of gateways
    has_neighbour: bool = False  # the sequencers also host a second virtual cluster


LONG = Length(
    is_short=False,
    load_s=9.0,
    requests=32,
    request_interval_s=0.22,
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
    request_interval_s=0.25,
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


def with_short_client_timeouts(length: Length) -> Length:
    """The same length, with clients of the old transaction protocol that soon repeat requests at another gateway."""
    return dataclasses.replace(length, has_short_timeouts=True, clients=with_short_timeouts(length.clients))


def name_of(seed: int, length: Length) -> str:
    """The name of a run: its seed, and its differences from the seed's own run."""
    long = "" if length.is_short or not length_of(seed).is_short else LONG_SUFFIX
    neighbour = NEIGHBOUR_SUFFIX if length.has_neighbour else ""
    return f"{seed}{neighbour}{long}{SHORT_TIMEOUTS_SUFFIX if length.has_short_timeouts else ''}"


def seed_and_length(name: str) -> tuple[int, Length]:
    """The seed and the length of the run with that name."""
    usual = name.removesuffix(SHORT_TIMEOUTS_SUFFIX)
    named = usual.removesuffix(LONG_SUFFIX)
    number = named.removesuffix(NEIGHBOUR_SUFFIX)
    if not number.isascii() or not number.isdigit():
        raise SystemExit(
            f"a run is a seed, with or without {NEIGHBOUR_SUFFIX}, {LONG_SUFFIX} and {SHORT_TIMEOUTS_SUFFIX}: {name!r}"
        )
    seed = int(number)
    length = LONG if usual.endswith(LONG_SUFFIX) else length_of(seed)
    length = dataclasses.replace(length, has_neighbour=named.endswith(NEIGHBOUR_SUFFIX))
    return seed, with_short_client_timeouts(length) if name.endswith(SHORT_TIMEOUTS_SUFFIX) else length
