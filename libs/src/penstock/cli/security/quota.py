"""`penstock quota`: sets, removes and lists client quotas, directly over NATS."""

import argparse
import re
from collections.abc import Sequence
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import add_cluster_flags, read_cluster, run
from penstock.cli.security.client import SecurityClient, connected_security
from penstock.contracts.commands import AlterClientQuotas, QuotaChange, QuotaPart
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
FLAGS = {USER: "--user", CLIENT_ID: "--client-id", IP: "--ip"}


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock quota` with the command line."""
    parser = new_parser(description="Client quotas of a cluster. The command needs no login, only access to NATS.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    keys = "; ".join(f"{quota.key}: {quota.documentation}" for quota in QUOTAS.values())
    set_ = verbs.add_parser("set", help="set quotas", description=f"Set quotas of one entity. {keys}")
    set_.add_argument("quotas", metavar="KEY=VALUE", nargs="+", help="for example producer_byte_rate=1000000")
    remove = verbs.add_parser("remove", help="remove quotas", description="Remove quotas of one entity.")
    remove.add_argument("quotas", metavar="KEY", nargs="*", help="only these (all)")
    listed = verbs.add_parser("list", help="list all quotas", description="List all quotas.")
    add_output_flag(listed)
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
        add_cluster_flags(verb, with_store=False)
        verb.set_defaults(run=run, run_verb=run_verb)


async def _set(arguments: argparse.Namespace) -> str:
    entity = read_entity(arguments)
    changes = read_changes(entity, arguments.quotas)
    async with connected_security(read_cluster(arguments), "penstock-quota") as client:
        await _change(client, entity, changes)
    return f"{named(entity)} has {', '.join(f'{each.key}={each.value}' for each in changes)}"


async def _remove(arguments: argparse.Namespace) -> str:
    entity = read_entity(arguments)
    async with connected_security(read_cluster(arguments), "penstock-quota") as client:
        present = (await client.read_quotas()).get(entity, {})
        wanted = arguments.quotas or list(present)
        absent = [key for key in wanted if key not in present]
        if absent or not present:
            raise Invalid(f"{named(entity)} has no quota {absent[0]}" if absent else f"{named(entity)} has no quotas")
        await _change(client, entity, [QuotaChange(key) for key in wanted])
    return f"{named(entity)} has no {', '.join(wanted)} any more"


async def _list(arguments: argparse.Namespace) -> Listing:
    async with connected_security(read_cluster(arguments), "penstock-quota") as client:
        quotas = await client.read_quotas()
    return Listing([row_of(entity, values) for entity, values in quotas.items()], "there are no quotas")


async def _change(client: SecurityClient, entity: Entity, changes: Sequence[QuotaChange]) -> None:
    parts = [QuotaPart(kind, name) for kind, name in entity]
    await client.change(lambda now_ms, seen: AlterClientQuotas(now_ms, parts, list(changes), seen))


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


def row_of(entity: Entity, values: dict[str, str]) -> dict[str, Any]:
    """One line of a list."""
    return {"entity": named(entity), "quotas": [f"{key}={value}" for key, value in sorted(values.items())]}
