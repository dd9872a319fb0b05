"""Configurations of a topic, a group or a broker, as Kafka lists and changes them."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.cli.kafka.session import Session
from penstock.contracts.configs.topics import TOPIC_CONFIGS
from penstock.contracts.configs.unsupported_topics import REJECTED_CONFIGS
from penstock.contracts.errors import Invalid

_PREFIX = re.compile(r"^\[Error \d+\] \w+: ")  # kafka-python puts it before the message of the cluster


def read_configs(session: Session, kind: str, name: str, *, only_changed: bool = False) -> list[dict[str, Any]]:
    """The configurations of a resource by name; `kind` is `TOPIC`, `GROUP` or `BROKER`."""
    from kafka.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType[kind], name)
    found = session.admin.describe_configs([resource], config_filter="modified" if only_changed else "all")
    entries = found.get(kind.lower(), {}).get(name, {})
    return [
        {
            "name": each,
            "value": "(secret)" if entry["is_sensitive"] else entry["value"],
            "source": entry["config_source"].lower().replace("_", " "),
        }
        for each, entry in sorted(entries.items())
    ]


def alter_configs(
    session: Session,
    kind: str,
    name: str,
    changes: Mapping[str, str],
    removals: Sequence[str],
    *,
    is_trial: bool = False,
) -> None:
    """Set and remove configurations at once; `Invalid` with the cluster's reason if that is not possible."""
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

    wanted: dict[str, Any] = {each: (AlterConfigOp.SET, value) for each, value in changes.items()}
    wanted |= dict.fromkeys(removals, (AlterConfigOp.DELETE, None))
    resource = ConfigResource(ConfigResourceType[kind], name, wanted)
    result = session.admin.alter_configs([resource], validate_only=is_trial, raise_on_unknown=False)
    answer = result.get(kind.lower(), {}).get(name, "no answer")
    if answer != "OK":
        hint = suggestion(changes) if kind == "TOPIC" else ""
        raise Invalid(f"{kind.lower()} {name!r} cannot be changed: {_PREFIX.sub('', answer)}{hint}")


def suggestion(names: Iterable[str]) -> str:
    """The end of an error about configurations of a topic: the one nearest to a misspelt name, "" for known names."""
    unknown = [each for each in names if each not in TOPIC_CONFIGS and each not in REJECTED_CONFIGS]
    if not unknown:
        return ""
    near = difflib.get_close_matches(unknown[0], TOPIC_CONFIGS, n=1)
    return f"; did you mean {near[0]}?" if near else "; `penstock topic describe TOPIC --all-configs` lists all"


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """The configurations NAME=VALUE; `Invalid` for any other text."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise Invalid(f"a configuration is NAME=VALUE: {text!r}")
        found[name] = value
    return found
