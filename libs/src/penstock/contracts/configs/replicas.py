"""The topic configuration with the brokers that clients assigned to partitions (ADR 0066).

It has the replicas of each partition in order, `1,2;2,3`. A partition without an assignment is empty.
"""

import functools
import re
from collections.abc import Sequence

from penstock.contracts.configs.values import INT_MAX

REPLICAS = "penstock.replicas"
# Three brokers for each of 180 partitions. A thousand topics, the most of one query, fit into one message of 8 MiB.
REPLICAS_LENGTH_MAX = 6_000
_FORM = re.compile(r"[0-9]{1,10}(,[0-9]{1,10})*")


def replicas_validation_error(value: str) -> str:
    """The reason why this is no list of replicas, "" if it is one."""
    if len(value) > REPLICAS_LENGTH_MAX:
        return f"has more than {REPLICAS_LENGTH_MAX} characters"
    is_good = all(not part or _FORM.fullmatch(part) for part in value.split(";"))
    return "" if is_good else "must have the broker ids of each partition, as in 1,2;2,3"


def encoded_replicas(replicas: Sequence[Sequence[int]]) -> str:
    """The configuration's value for the replicas of each partition."""
    return ";".join(",".join(map(str, assigned)) for assigned in replicas)


@functools.lru_cache(1_000)
def decoded_replicas(value: str) -> tuple[tuple[int, ...], ...]:
    """The replicas of the first partitions; the others have no assignment.

    The form of the value allows ten digits, and journals hold such values. Ids that no broker can have are left out.
    """
    parts = (map(int, filter(None, part.split(","))) for part in value.split(";"))
    return tuple(tuple(each for each in part if each <= INT_MAX) for part in parts)
