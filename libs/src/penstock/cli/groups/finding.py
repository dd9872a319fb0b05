"""Finds a group of any kind by its name."""

from penstock.cli.groups.members import Group, read_classic, read_consumers, read_share
from penstock.cli.groups.streams import find_streams_group
from penstock.cli.kafka.session import Session
from penstock.contracts.errors import Invalid

_KINDS = (read_consumers, read_classic, read_share, find_streams_group)


def read_group(session: Session, name: str) -> Group:
    """The group; `Invalid` if there is none, or this user may not see it."""
    found = find_group(session, name)
    if found is None:
        raise Invalid(f"there is no group {name!r}; `penstock group list` lists all groups")
    return found


def find_group(session: Session, name: str) -> Group | None:
    """The group, None if there is none; `Invalid` if this user may not see it."""
    for read in _KINDS:
        found = read(session, name)
        if found is not None:
            return found
    return None
