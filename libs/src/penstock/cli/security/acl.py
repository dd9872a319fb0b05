"""`penstock acl`: adds, removes and lists access control lists, directly over NATS."""

import argparse
import sys
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import add_cluster_flags, read_cluster, run
from penstock.cli.security.client import connected_security
from penstock.contracts.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    matches,
)
from penstock.contracts.commands import AclsDeleted, CreateAcls, DeleteAcls
from penstock.contracts.errors import Invalid
from penstock.contracts.security_rules import binding_validation_error

NOTHING = "no access control list matches"


def _word(value: ResourceType | PatternType | AclOperation | AclPermission) -> str:
    return value.name.lower().replace("_", "-")


OPERATIONS: dict[str, AclOperation] = {_word(each): each for each in AclOperation if each != AclOperation.ANY}
RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.USER)


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock acl` with the command line."""
    parser = new_parser(
        description="Access control lists of a cluster. The command needs no login, only access to NATS."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = verbs.add_parser("add", help="allow or deny operations", description="Allow or deny operations.")
    remove = verbs.add_parser(
        "remove", help="remove entries", description="Remove all entries that agree with the flags."
    )
    remove.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    listed = verbs.add_parser("list", help="list entries", description="List the entries that agree with the flags.")
    for verb in (remove, listed):
        add_output_flag(verb)
    for verb, run_verb in ((add, _add), (remove, _remove), (listed, _list)):
        _add_entry_flags(verb, is_required=verb is add)
        add_cluster_flags(verb, with_store=False)
        verb.set_defaults(run=run, run_verb=run_verb)


def _add_entry_flags(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    parser.add_argument("--principal", metavar="TYPE:NAME", required=is_required, help="such as User:alice or User:*")
    parser.add_argument(
        "--operation", choices=sorted(OPERATIONS), action="append", required=is_required, help="may be repeated"
    )
    parser.add_argument("--host", metavar="ADDRESS", help="an IP address, or '*'" + " ('*')" * is_required)
    kind = parser.add_mutually_exclusive_group(required=is_required)
    for each in RESOURCES:
        kind.add_argument(f"--{_word(each)}", metavar="NAME", help=f"a {_word(each)}, or '*'")
    kind.add_argument("--cluster-resource", action="store_true", help="the cluster itself")
    parser.add_argument("--prefixed", action="store_true", help="the name is a prefix")
    parser.add_argument("--deny", action="store_true", help="entries that deny")
    if not is_required:
        parser.add_argument("--allow", action="store_true", help="entries that allow")


async def _add(arguments: argparse.Namespace) -> str:
    bindings = bindings_of(arguments)
    async with connected_security(read_cluster(arguments), "penstock-acl") as client:
        await client.change(lambda now_ms, seen: CreateAcls(now_ms, bindings, seen))
    return "\n".join(f"added: {sentence(each)}" for each in bindings)


async def _remove(arguments: argparse.Namespace) -> Listing:
    filters = filters_of(arguments)
    async with connected_security(read_cluster(arguments), "penstock-acl") as client:
        if not arguments.yes:
            _, bindings = await client.read()
            found = [each for each in bindings if any(matches(wanted, each) for wanted in filters)]
            if found:
                print("nothing is removed without --yes", file=sys.stderr)
            return Listing([row_of(each) for each in found], NOTHING)
        outcome = await client.change(lambda now_ms, seen: DeleteAcls(now_ms, filters, seen))
    removed = outcome.deleted if isinstance(outcome, AclsDeleted) else []
    rows = [row_of(each) for each in dict.fromkeys(each for found in removed for each in found)]
    return Listing(rows, NOTHING)


async def _list(arguments: argparse.Namespace) -> Listing:
    filters = filters_of(arguments)
    async with connected_security(read_cluster(arguments), "penstock-acl") as client:
        _, bindings = await client.read()
    found = [each for each in bindings if any(matches(wanted, each) for wanted in filters)]
    return Listing([row_of(each) for each in found], NOTHING)


def bindings_of(arguments: argparse.Namespace) -> list[AclBinding]:
    """One binding per operation; `Invalid` with the reason if one is invalid."""
    kind, name = _resource(arguments)
    assert kind is not None, "the flags of `add` demand a resource"
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
        "permission": _word(binding.permission),
        "operation": _word(binding.operation),
        "resource_type": _word(binding.resource_type),
        "name": binding.name,
        "pattern": _word(binding.pattern_type),
        "host": binding.host,
    }


def sentence(binding: AclBinding) -> str:
    """The binding in words."""
    verb = "may" if binding.permission == AclPermission.ALLOW else "may not"
    pattern = "prefix " if binding.pattern_type == PatternType.PREFIXED else ""
    where = "" if binding.host == WILDCARD else f" from {binding.host}"
    resource = f"{_word(binding.resource_type)} {pattern}{binding.name}"
    return f"{binding.principal} {verb} {_word(binding.operation)} {resource}{where}"
