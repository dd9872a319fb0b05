"""Logs the commands of operators, which pass no gateway and no audit topic (ADR 0037); never a verifier."""

from collections.abc import Iterator, Sequence

import structlog

from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import AlterClientQuotas, Command, Outcome, PerItem, Rejected, UndeleteTopic
from penstock.contracts.commands.delegation_tokens import ExpireToken
from penstock.contracts.commands.security import AlterScramCredentials, CreateAcls, DeleteAcls
from penstock.contracts.rejections import Rejection

SHOWN_MAX = 100  # changes of one command that have a line; the last line has the number of the others

log = structlog.get_logger()


def log_administration(commands: Sequence[Command], outcomes: Sequence[Outcome]) -> None:
    """Log each change that the commands made or that was rejected."""
    for command, outcome in zip(commands, outcomes, strict=False):
        changes = list(_changes(command))
        more = max(len(changes) - SHOWN_MAX, 0)
        for number, change in enumerate(changes[:SHOWN_MAX]):
            log.info(
                "administrative_command",
                command=type(command).__name__,
                change=change,
                outcome=_outcome(outcome, number),
                **({"more": more} if more and number == SHOWN_MAX - 1 else {}),
            )


def _changes(command: Command) -> Iterator[str]:
    if isinstance(command, AlterScramCredentials):  # in the order of the outcome's rejections
        yield from (f"set {each.verifier.mechanism.name} of User:{each.user}" for each in command.upsertions)
        yield from (f"delete {each.mechanism.name} of User:{each.user}" for each in command.deletions)
    elif isinstance(command, CreateAcls):
        yield from map(_rule, command.bindings)
    elif isinstance(command, DeleteAcls):
        yield from map(_rule, command.filters)
    elif isinstance(command, AlterClientQuotas):
        entity = ",".join(f"{part.kind}={'<default>' if part.name is None else part.name}" for part in command.entity)
        yield from (f"{each.key}={each.value} of {entity}" for each in command.changes)
    elif isinstance(command, ExpireToken):
        yield f"revoke delegation token {command.token_id}"
    elif isinstance(command, UndeleteTopic):
        yield f"topic {command.name}"


def _rule(acl: AclBinding | AclFilter) -> str:
    """A binding, or a filter, where None matches anything."""
    permission, operation = AclPermission(acl.permission).name, AclOperation(acl.operation).name
    resource = f"{ResourceType(acl.resource_type).name}:{PatternType(acl.pattern_type).name}:{acl.name or 'ANY'}"
    return f"{permission} {acl.principal or 'ANY'} {operation} on {resource} from {acl.host or 'ANY'}"


def _outcome(outcome: Outcome, number: int) -> str:
    if isinstance(outcome, PerItem) and number < len(outcome.rejections):
        return _name(outcome.rejections[number])
    return _name(outcome.rejection) if isinstance(outcome, Rejected) else "accepted"


def _name(rejection: int) -> str:
    return Rejection(rejection).name.lower() if rejection else "accepted"
