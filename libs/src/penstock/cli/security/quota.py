"""`penstock quota`: sets, removes and lists client quotas."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.kafka.session import confirm
from penstock.cli.output import Listing
from penstock.cli.security.connecting import TRANSPORT_HELP, add_admin_flags, connected_admin
from penstock.contracts.commands import QuotaChange
from penstock.contracts.configs.quotas import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    QUOTAS,
    USER,
    Entity,
    entity_of,
    entity_validation_error,
    value_validation_error,
)
from penstock.contracts.errors import Invalid

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
NOTHING = "there are no quotas"
FLAGS = {USER: "--user", CLIENT_ID: "--client-id", IP: "--ip"}


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock quota` with the command line."""
    parser = new_parser(description=f"Client quotas of a cluster. {TRANSPORT_HELP}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    keys = "; ".join(f"{quota.key}: {quota.documentation}" for quota in QUOTAS.values())
    set_ = verbs.add_parser("set", help="set quotas", description=f"Set quotas of one entity. {keys}")
    set_.add_argument("quotas", metavar="KEY=VALUE", nargs="+", help="for example producer_byte_rate=1000000")
    remove = verbs.add_parser("remove", help="remove quotas", description="Remove quotas of one entity.")
    remove.add_argument("quotas", metavar="KEY", nargs="*", help="only these (all)")
    remove.add_argument("-y", "--yes", action="store_true", help="do not ask")
    listed = verbs.add_parser("list", help="list all quotas", description="List all quotas.")
    for verb in (set_, remove):
        for kind, flag in FLAGS.items():
            either = verb.add_mutually_exclusive_group()
            either.add_argument(flag, metavar="NAME", dest=kind, default=None, help=f"the {kind}")
            either.add_argument(
                f"--default-{flag[2:]}",
                dest=f"default {kind}",
                action="store_true",
                help=f"each {kind} without a quota",
            )
    for verb, run_verb in ((set_, _set), (remove, _remove), (listed, _list)):
        add_admin_flags(verb, is_change=verb is not listed)
        verb.set_defaults(run_verb=run_verb)


async def _set(arguments: argparse.Namespace) -> Listing:
    entity = read_entity(arguments)
    changes = read_changes(entity, arguments.quotas)
    async with connected_admin(arguments) as admin:
        present = (await admin.quotas()).get(entity, {})
        await admin.alter_quotas(entity, changes, is_trial=arguments.dry_run)
    row = row_of(entity, {each.key: each.value or "" for each in changes})
    before = row_of(entity, {each.key: present[each.key] for each in changes if each.key in present})["quotas"]
    return Listing([row | {"before": before, "result": "would be set" if arguments.dry_run else "set"}], NOTHING)


async def _remove(arguments: argparse.Namespace) -> Listing:
    entity = read_entity(arguments)
    async with connected_admin(arguments) as admin:
        present = (await admin.quotas()).get(entity, {})
        wanted = arguments.quotas or list(present)
        absent = [key for key in wanted if key not in present]
        if absent or not present:
            raise Invalid(f"{named(entity)} has no quota {absent[0]}" if absent else f"{named(entity)} has no quotas")
        changes = [QuotaChange(key) for key in wanted]
        if arguments.dry_run:
            await admin.alter_quotas(entity, changes, is_trial=True)
    if not arguments.dry_run:  # the question can wait for long, so no connection is open meanwhile
        confirm(f"Remove {', '.join(wanted)} of {named(entity)}?", is_confirmed=arguments.yes)
        async with connected_admin(arguments) as admin:
            await admin.alter_quotas(entity, changes)
    word = "would be removed" if arguments.dry_run else "removed"
    return Listing([row_of(entity, {key: present[key] for key in wanted}) | {"result": word}], NOTHING)


async def _list(arguments: argparse.Namespace) -> Listing:
    async with connected_admin(arguments) as admin:
        quotas = await admin.quotas()
    return Listing([row_of(entity, values) for entity, values in quotas.items()], NOTHING)


def read_entity(arguments: argparse.Namespace) -> Entity:
    """The entity that the flags name; `Invalid` without one, or for a wrong combination."""
    flags = vars(arguments)
    parts: list[tuple[str, str | None]] = [(kind, flags[kind]) for kind in ENTITY_TYPES if flags[kind] is not None]
    parts += [(kind, None) for kind in ENTITY_TYPES if flags[f"default {kind}"]]
    if not parts:
        raise Invalid(f"name whose quota it is: {', '.join(FLAGS.values())}, or one of them with --default-")
    entity = entity_of(parts)
    reason = entity_validation_error(entity)
    if reason:
        raise Invalid(reason)
    return entity


def read_changes(entity: Entity, texts: Sequence[str]) -> list[QuotaChange]:
    """The changes KEY=VALUE; `Invalid` if one does not fit the entity."""
    changes = []
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise Invalid(f"a quota is KEY=VALUE: {text!r}")
        if key not in QUOTAS:
            raise Invalid(f"there is no quota {key!r}; there are {', '.join(QUOTAS)}")
        reason = value_validation_error(entity, key, value) if _NUMBER.fullmatch(value) else "a quota is a number"
        if reason:
            raise Invalid(f"{reason} ({text})")
        changes.append(QuotaChange(key, value))
    return changes


def named(entity: Entity) -> str:
    """The entity in words."""
    return ", ".join(f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in entity)


def row_of(entity: Entity, values: Mapping[str, str]) -> dict[str, Any]:
    """One line of a list."""
    return {"entity": named(entity), "quotas": [f"{key}={value}" for key, value in sorted(values.items())]}
