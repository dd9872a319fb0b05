"""Users and access control lists, read and changed as the user, with the functions of the command line."""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.cli.kafka.session import Session
from penstock.cli.security.administration import ScramUser
from penstock.cli.security.over_kafka import KafkaAdmin
from penstock.cli.security.user import (
    ITERATIONS_DEFAULT,
    checked_name,
    checked_password,
    found_user,
    mechanisms_of,
    new_passwords,
)
from penstock.contracts.acls import AclBinding, AclFilter
from penstock.contracts.commands import ScramDeletion
from penstock.contracts.errors import Invalid
from penstock.contracts.security_rules import binding_validation_error


def read_users(session: Session) -> list[ScramUser]:
    """All users with a password, by name."""
    return asyncio.run(KafkaAdmin(session).users())


def read_bindings(session: Session, wanted: Sequence[AclFilter] = (AclFilter(),)) -> list[AclBinding]:
    """The access control lists that at least one filter means, as far as the user may see them."""
    return asyncio.run(KafkaAdmin(session).bindings(wanted))


def create_user(session: Session, name: str, password: str, mechanism: str) -> None:
    """Create a user with one mechanism, or with each if it is ""; `Invalid` if the user exists."""
    _check_new_password(name, password)
    if any(each.name == name for each in read_users(session)):
        raise Invalid(f"user {name!r} exists already")
    _set_password(session, name, password, mechanism)


def set_password(session: Session, name: str, password: str, mechanism: str) -> None:
    """Set the password of a user for one mechanism, or for each if it is ""; `Invalid` for an unknown user."""
    _check_new_password(name, password)
    found_user(read_users(session), name)
    _set_password(session, name, password, mechanism)


def _check_new_password(name: str, password: str) -> None:
    checked_name(name)
    checked_password(password)


def _set_password(session: Session, name: str, password: str, mechanism: str) -> None:
    wanted = mechanisms_of(mechanism or None)
    passwords = new_passwords(name, wanted, checked_password(password), ITERATIONS_DEFAULT)
    asyncio.run(KafkaAdmin(session).set_passwords(passwords))


def delete_user(session: Session, name: str) -> None:
    """Delete all passwords of a user. Its access control lists stay."""
    user = found_user(read_users(session), name)
    wanted = [ScramDeletion(name, each.mechanism) for each in user.credentials]
    asyncio.run(KafkaAdmin(session).delete_credentials(wanted))


def add_binding(session: Session, binding: AclBinding) -> None:
    """Add an entry; one that exists is no error. `Invalid` with the reason if there can be no such entry."""
    reason = binding_validation_error(binding)
    if reason:
        raise Invalid(reason)
    asyncio.run(KafkaAdmin(session).create_bindings([binding]))


def remove_binding(session: Session, binding: AclBinding) -> None:
    """Remove exactly this entry; `Invalid` if there is none."""
    if not asyncio.run(KafkaAdmin(session).delete_bindings([only(binding)])):
        raise Invalid("there is no such entry: it may have been removed meanwhile")


def only(binding: AclBinding) -> AclFilter:
    """The filter that means this entry only."""
    return AclFilter(*msgspec.structs.astuple(binding))
