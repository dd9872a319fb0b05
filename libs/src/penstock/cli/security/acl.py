"""`penstock acl`: adds, removes and lists entries of access control lists."""

import argparse
from typing import Any

import msgspec

from penstock.cli.command_line import NewParser
from penstock.cli.kafka.session import confirm
from penstock.cli.output import Listing
from penstock.cli.security.connecting import TRANSPORT_HELP, add_admin_flags, connected_admin
from penstock.contracts.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.contracts.errors import Invalid
from penstock.contracts.security_rules import binding_validation_error

NOTHING = "no access control list matches"


def word_of(value: ResourceType | PatternType | AclOperation | AclPermission) -> str:
    """A member of these enumerations as flags and lists have it."""
    return value.name.lower().replace("_", "-")


OPERATIONS: dict[str, AclOperation] = {word_of(each): each for each in AclOperation if each != AclOperation.ANY}
RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.USER)


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock acl` with the command line."""
    parser = new_parser(description=f"Access control lists of a cluster. {TRANSPORT_HELP}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = verbs.add_parser("add", help="allow or deny operations", description="Allow or deny operations.")
    remove = verbs.add_parser(
        "remove", help="remove entries", description="Remove all entries that agree with the flags."
    )
    remove.add_argument("-y", "--yes", action="store_true", help="do not ask")
    listed = verbs.add_parser("list", help="list entries", description="List the entries that agree with the flags.")
    for verb, run_verb in ((add, _add), (remove, _remove), (listed, _list)):
        _add_entry_flags(verb, is_required=verb is add)
        add_admin_flags(verb, is_change=verb is not listed)
        verb.set_defaults(run_verb=run_verb)


def _add_entry_flags(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    parser.add_argument("--principal", metavar="TYPE:NAME", required=is_required, help="such as User:alice or User:*")
    parser.add_argument(
        "--operation", choices=sorted(OPERATIONS), action="append", required=is_required, help="may be repeated"
    )
    parser.add_argument("--host", metavar="ADDRESS", help="an IP address, or '*'" + " ('*')" * is_required)
    kind = parser.add_mutually_exclusive_group(required=is_required)
    for each in RESOURCES:
        kind.add_argument(f"--{word_of(each)}", metavar="NAME", help=f"a {word_of(each)}, or '*'")
    kind.add_argument("--cluster-resource", action="store_true", help="the cluster itself")
    parser.add_argument("--prefixed", action="store_true", help="the name is a prefix")
    parser.add_argument("--deny", action="store_true", help="entries that deny")
    if not is_required:
        parser.add_argument("--allow", action="store_true", help="entries that allow")


async def _add(arguments: argparse.Namespace) -> Listing:
    bindings = bindings_of(arguments)
    async with connected_admin(arguments) as admin:
        present = set(await admin.bindings([AclFilter(*msgspec.structs.astuple(each)) for each in bindings]))
        if not arguments.dry_run:
            await admin.create_bindings(bindings)
    word = "would be added" if arguments.dry_run else "added"
    return Listing(
        [row_of(each) | {"result": "exists already" if each in present else word} for each in bindings], NOTHING
    )


async def _remove(arguments: argparse.Namespace) -> Listing:
    filters = filters_of(arguments)
    async with connected_admin(arguments) as admin:
        found = await admin.bindings(filters)
    if found and not arguments.dry_run:  # the question can wait for long, so no connection is open meanwhile
        question = f"Remove {len(found)} entries, which --dry-run lists?"
        confirm(question, is_confirmed=arguments.yes)
        async with connected_admin(arguments) as admin:
            found = await admin.delete_bindings(filters)
    word = "would be removed" if arguments.dry_run else "removed"
    return Listing([row_of(each) | {"result": word} for each in found], NOTHING)


async def _list(arguments: argparse.Namespace) -> Listing:
    filters = filters_of(arguments)
    async with connected_admin(arguments) as admin:
        return Listing([row_of(each) for each in await admin.bindings(filters)], NOTHING)


def bindings_of(arguments: argparse.Namespace) -> list[AclBinding]:
    """One binding per operation; `Invalid` with the reason if one is invalid."""
    kind, name = _resource(arguments)
    assert kind is not None, "the flags of `add` demand a resource"
    if ":" not in arguments.principal:
        raise Invalid(f"a principal is TYPE:NAME, such as User:{arguments.principal}: {arguments.principal!r}")
    pattern = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL
    permission = AclPermission.DENY if arguments.deny else AclPermission.ALLOW
    who = (arguments.principal, arguments.host or WILDCARD)
    bindings = [
        AclBinding(kind, name or "", pattern, *who, OPERATIONS[each], permission) for each in arguments.operation
    ]
    for binding in bindings:
        reason = binding_validation_error(binding)
        if reason:
            raise Invalid(reason)
    return bindings


def filters_of(arguments: argparse.Namespace) -> list[AclFilter]:
    """One filter per operation, or one for all operations."""
    kind, name = _resource(arguments)
    pattern = PatternType.PREFIXED if arguments.prefixed else PatternType.ANY
    permission = AclPermission.DENY if arguments.deny else AclPermission.ANY
    if arguments.allow:
        if arguments.deny:
            raise Invalid("an entry allows or denies: give --allow or --deny, or neither for both")
        permission = AclPermission.ALLOW
    operations = [OPERATIONS[each] for each in arguments.operation or []] or [AclOperation.ANY]
    who = (arguments.principal, arguments.host)
    return [AclFilter(kind or ResourceType.ANY, name, pattern, *who, each, permission) for each in operations]


def _resource(arguments: argparse.Namespace) -> tuple[ResourceType | None, str | None]:
    if arguments.cluster_resource:
        return ResourceType.CLUSTER, CLUSTER_NAME
    for each in RESOURCES:
        name = getattr(arguments, each.name.lower())
        if name is not None:
            return each, name
    return None, None


def row_of(binding: AclBinding) -> dict[str, Any]:
    """One line of a list."""
    return {
        "principal": binding.principal,
        "permission": word_of(binding.permission),
        "operation": word_of(binding.operation),
        "resource_type": word_of(binding.resource_type),
        "name": binding.name,
        "pattern": word_of(binding.pattern_type),
        "host": binding.host,
    }
