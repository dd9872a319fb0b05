"""The tables and documents of docs/operating/policies.md: the rights of each service at the store."""

import json
from collections.abc import Iterable, Mapping
from functools import partial

from penstock.cli.credentials.store_rights import HOSTING, RIGHTS, Place, Right, policy
from tests.testkit.docs.blocks import Maker, table


def makers() -> dict[str, Maker]:
    """A table of all rights, one of those of processes with many clusters, and a document for each service."""
    return {
        "store_rights": lambda: _table(RIGHTS),
        "store_hosting": lambda: _table(HOSTING),
        **{f"policy_{service}": partial(_document, RIGHTS[service]) for service in RIGHTS},
        **{f"policy_hosting_{service}": partial(_document, rights) for service, rights in HOSTING.items()},
    }


def _table(rights: Mapping[str, Iterable[Right]]) -> list[str]:
    rows = [
        [service, f"`{each.key}`" if each.key else "the whole store", ", ".join(verb.value for verb in each.verbs)]
        for service, given in rights.items()
        for each in given
    ]
    return table(["service", "keys", "may"], rows)


def _document(rights: Iterable[Right]) -> list[str]:
    return ["```json", *json.dumps(policy(rights, Place()), indent=1).splitlines(), "```"]
