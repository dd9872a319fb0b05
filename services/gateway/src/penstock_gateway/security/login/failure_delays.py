"""How long a gateway waits before it answers a failed login: longer after each failure from the same address. Pure."""

import ipaddress
import math
from collections import OrderedDict

import msgspec

IPV6_PREFIX_BITS = 64  # one client may have all addresses of such a network


class DelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The delays, and how long failures count."""

    first_s: float = 0.1  # as in Kafka (connection.failed.authentication.delay.ms)
    delay_s_max: float = 5.0
    half_life_s: float = 30.0  # after it a failure counts half
    addresses_max: int = 10_000  # some 2 MB; the addresses that failed longest ago are removed first


class FailureDelays:
    """The failed logins of each address. A login that succeeds removes none: an attacker may have one password."""

    def __init__(self, limits: DelayLimits | None = None) -> None:
        self._limits = limits or DelayLimits()
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()  # their weight, and the time of the last

    def __len__(self) -> int:
        return len(self._failures)

    def record(self, address: str, now_s: float) -> float:
        """Record a failed login, and return the delay of its answer, in seconds."""
        limits, network = self._limits, _network(address)
        weight, last_s = self._failures.pop(network, (0.0, now_s))
        weight = weight * math.pow(0.5, (now_s - last_s) / limits.half_life_s) + 1
        self._failures[network] = weight, now_s
        if len(self._failures) > limits.addresses_max:
            self._failures.popitem(last=False)
        doublings = min(weight - 1, 64.0)  # more would overflow at last
        return min(limits.first_s * math.pow(2, doublings), limits.delay_s_max)


def _network(address: str) -> str:
    """The address, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), IPV6_PREFIX_BITS), strict=False))
