"""Compares the answers about users and access control lists with the independent model."""

from collections.abc import Callable
from typing import Any

from tests.testkit.sim.clients.kafka import ALTER_SCRAM, CREATE_ACLS, DESCRIBE_ACLS, DESCRIBE_SCRAM
from tests.testkit.sim.model.security import SecurityCommands

Span = tuple[int, int]  # the newest entries at question and answer
Wrong = Callable[[str, str], None]


class SecurityAnswers:
    """A list must have been true at some entry since the question, and so must a change that was accepted."""

    def __init__(self, model: SecurityCommands, wrong: Wrong) -> None:
        self._model = model
        self._wrong = wrong
        self.by_api: dict[int, Callable[[str, Any, Any, Span], None]] = {
            ALTER_SCRAM: self._altered,
            CREATE_ACLS: self._created,
            DESCRIBE_SCRAM: self._users_described,
            DESCRIBE_ACLS: self._lists_described,
        }

    def _altered(self, client: str, request: Any, answer: Any, span: Span) -> None:
        states = self._model.credentials.during(*span)
        accepted = {each.user for each in answer.results if not each.error_code}
        for each in request.upsertions:
            place = (each.name, each.mechanism)
            if each.name in accepted and not any(_has(state, place, each.salt) for state in states):
                self._wrong(client, f"the password {place} was accepted, and never in force")
        for each in request.deletions:
            if each.name in accepted and all((each.name, each.mechanism) in state for state in states):
                self._wrong(client, f"the password {(each.name, each.mechanism)} was deleted, and stayed")

    def _created(self, client: str, request: Any, answer: Any, span: Span) -> None:
        states = self._model.bindings.during(*span)
        for creation, result in zip(request.creations, answer.results, strict=True):
            wanted = (creation.resource_name, creation.resource_pattern_type, creation.principal, creation.operation)
            if result.error_code:
                continue
            if not any(wanted == _key(each) for state in states for each in state):
                self._wrong(client, f"the list {wanted} was created, and never in force")

    def _users_described(self, client: str, request: Any, answer: Any, span: Span) -> None:
        if answer.error_code:
            return
        found = {
            (each.user, info.mechanism): info.iterations for each in answer.results for info in each.credential_infos
        }
        states = self._model.credentials.during(*span)
        true = [{place: each.iterations for place, each in state.items()} for state in states]
        if found not in true:
            self._wrong(client, f"users {found}, they were {true}")

    def _lists_described(self, client: str, request: Any, answer: Any, span: Span) -> None:
        if answer.error_code:
            return
        found = sorted(
            (resource.resource_name, resource.pattern_type, each.principal, each.operation, each.permission_type)
            for resource in answer.resources
            for each in resource.acls
        )
        true = [
            sorted((*_key(each), int(each.permission)) for each in state)
            for state in self._model.bindings.during(*span)
        ]
        if found not in true:
            self._wrong(client, f"lists {found}, they were {true}")


def _has(state: Any, place: tuple[str, int], salt: bytes) -> bool:
    return place in state and state[place].salt == bytes(salt)


def _key(binding: Any) -> tuple[str, int, str, int]:
    return binding.name, int(binding.pattern_type), binding.principal, int(binding.operation)
