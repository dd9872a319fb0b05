"""Names of topics and groups for the completion of a shell, read from the cluster that the command line names."""

import argparse
from collections.abc import Callable

from penstock.cli.kafka.session import Session, connected
from penstock.contracts.errors import PenstockError

TIMEOUT_S = 2.0  # a user waits for it


def with_topics(argument: argparse.Action) -> None:
    """Complete the argument with names of topics."""
    _complete(argument, _topics)


def with_groups(argument: argparse.Action) -> None:
    """Complete the argument with names of groups."""
    _complete(argument, _groups)


def _topics(session: Session) -> list[str]:
    return [topic["name"] for topic in session.admin.describe_topics(None) if not topic["is_internal"]]


def _groups(session: Session) -> list[str]:
    return sorted({group["group_id"] for group in session.admin.list_groups()})


def _complete(argument: argparse.Action, read: Callable[[Session], list[str]]) -> None:
    """Set the function that argcomplete looks for. Without a cluster there are no words."""

    def words(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        flags = {name: getattr(parsed_args, name, "") for name in ("bootstrap", "profile", "command_config")}
        try:
            with connected(argparse.Namespace(**flags, timeout=TIMEOUT_S)) as session:
                return [word for word in read(session) if word.startswith(prefix)]
        except PenstockError:
            return []

    argument.completer = words  # type: ignore[attr-defined]
