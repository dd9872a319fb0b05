"""The record of a virtual cluster: its state, its quotas, and the names by which gateways choose it."""

import enum
import re
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.contracts.errors import Corrupt, Invalid
from penstock.contracts.ids import check_token

NAMES_MAX = 100  # server names, and tenants, of one cluster
_Quota = Annotated[int, Meta(ge=0, le=2**62)]
_SERVER_NAME = re.compile(r"(?=.{1,253}$)(\*\.)?[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*")


class ClusterState(enum.StrEnum):
    """The states of a cluster, in the order in which a cluster passes them. Only `undelete` goes back."""

    ACTIVE = "active"  # processes serve it
    DELETED = "deleted"  # no process serves it; it can come back until `undelete_until_ms`
    EMPTYING = "emptying"  # a janitor deletes its journal and objects; it cannot come back
    GONE = "gone"  # nothing is left but this record, and the name is free


class ClusterQuotas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one cluster; 0 is no limit."""

    partitions: _Quota = 0  # of all topics together
    stored_bytes: _Quota = 0  # of live records, as they are stored
    produced_bytes_per_s: _Quota = 0  # of all clients together
    consumed_bytes_per_s: _Quota = 0
    connections: _Quota = 0  # at each gateway


NO_QUOTAS = ClusterQuotas()


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cluster as the registry knows it. Times are milliseconds since 1970, by the clock of the writer.

    Records are JSON. Unknown fields are ignored, so that a newer release can add some.
    """

    name: str
    created_id: str  # random; two clusters that had the same name one after the other differ in it
    created_ms: int
    state: ClusterState = ClusterState.ACTIVE
    deleted_ms: int = 0  # when `delete` was called; 0 for an active cluster
    undelete_until_ms: int = 0  # the end of the undelete window; 0 for an active cluster
    emptied_ms: int = 0  # when a janitor first found nothing left; 0 before
    # The number of the change. Without it, an undeleted cluster would get its old bytes, and so its old version in
    # S3. A write from before, which a store takes late, would not fail at the version.
    revision: int = 0
    # A gateway that finds a name in several records takes the record that was created first.
    server_names: tuple[str, ...] = ()  # of TLS, in lower case; `*.example.org` stands for one label
    tenants: tuple[str, ...] = ()  # of logins
    quotas: ClusterQuotas = NO_QUOTAS

    @property
    def is_active(self) -> bool:
        """Whether processes serve this cluster."""
        return self.state == ClusterState.ACTIVE


def deleted(record: ClusterRecord, now_ms: int, window_ms: int) -> ClusterRecord:
    """The record of a cluster that is deleted now, and can come back within the window."""
    return msgspec.structs.replace(
        record, state=ClusterState.DELETED, deleted_ms=now_ms, undelete_until_ms=now_ms + window_ms
    )


def undeleted(record: ClusterRecord) -> ClusterRecord:
    """The record of a deleted cluster that is back."""
    return msgspec.structs.replace(record, state=ClusterState.ACTIVE, deleted_ms=0, undelete_until_ms=0)


def encode_record(record: ClusterRecord) -> bytes:
    """The bytes of the record's object."""
    return msgspec.json.encode(record)


def decode_record(key: str, data: bytes) -> ClusterRecord:
    """The record in an object; `Corrupt`, which names `key`, if it is none."""
    try:
        return check_record(msgspec.json.decode(data, type=ClusterRecord))
    except (msgspec.DecodeError, Invalid) as error:
        raise Corrupt(f"the object {key} is no record of a cluster: {error}") from error


def check_record(record: ClusterRecord) -> ClusterRecord:
    """The record if its names can be used, else `Invalid`."""
    check_token("cluster", record.name)
    if max(len(record.server_names), len(record.tenants)) > NAMES_MAX:
        raise Invalid(f"cluster {record.name} may have at most {NAMES_MAX} server names and {NAMES_MAX} tenants")
    for name in record.server_names:
        if not _SERVER_NAME.fullmatch(name):
            raise Invalid(f"a server name is a DNS name in lower case, such as a.example.org: {name!r}")
    for tenant in record.tenants:
        check_token("tenant", tenant)
    return record
