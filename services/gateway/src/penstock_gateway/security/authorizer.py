"""Decides which operations a client may do: super users, bindings, and the modes off, shadow and on."""

import enum
from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.acls import CLUSTER_NAME, AclBinding, AclOperation, ResourceType, user_principal
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.security_rules import NAME_LENGTH_MAX
from penstock.kafkawire.api import API_TABLE
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.acl_index import ALL_OPERATIONS, AclIndex, Operations, Rights
from penstock_gateway.security.denial_log import Denial, DenialLog

# Principals and hosts with rights in memory, and cached results over all of them: some 25 MB at most. Beyond either
# number all are removed, and computed again when they are needed: a result takes 1 to 2 us. A long name counts as
# several results.
RIGHTS_MAX = 10_000
RESULTS_MAX = 20_000
CHARACTERS_PER_RESULT = 32


class AuthorizerMode(enum.StrEnum):
    """OFF allows everything; SHADOW allows everything and reports denials; ON denies."""

    OFF = "off"
    SHADOW = "shadow"
    ON = "on"


def parse_mode(text: str) -> AuthorizerMode:
    """The mode with this name; `Invalid` for another text."""
    try:
        return AuthorizerMode(text)
    except ValueError:
        raise Invalid(f"authorizer must be off, shadow or on: {text!r}") from None


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of a list in Kafka's syntax, "User:alice;User:bob"; `Invalid` if one is not a principal."""
    principals = [each.strip() for each in text.split(";") if each.strip()]
    for each in principals:
        principal_type, _, name = each.partition(":")
        if not principal_type or not name:
            raise Invalid(f"super_users: {each!r} is not a principal such as User:alice; a semicolon separates them")
    return frozenset(principals)


class BindingSource(Protocol):
    """The part of the security cache that an authorizer uses."""

    @property
    def bindings(self) -> Sequence[AclBinding]: ...

    @property
    def sequence(self) -> int:
        """The newest change of the bindings that is applied here."""

    @property
    def is_known(self) -> bool:
        """Whether a sequencer has answered once."""


class _Results:
    """The rights of one principal from one host, and the results that were needed so far."""

    __slots__ = ("by_resource", "rights")

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self.by_resource: dict[tuple[ResourceType, str], Operations] = {}


class Authorizer:
    """The access control of one gateway."""

    def __init__(
        self, mode: AuthorizerMode, super_users: frozenset[str], source: BindingSource, denials: DenialLog
    ) -> None:
        self.mode = mode
        self._super_users = super_users
        self._source = source
        self._denials = denials
        self._index: AclIndex | None = None
        self._sequence = -1
        self._results: dict[tuple[str, str], _Results] = {}
        self._result_count = 0

    def access(self, client: Client, api_key: int) -> "Access | None":
        """The access of a client for a request of this API; None if the client may do everything.

        Raise `Unavailable` while the bindings are not known: nothing is allowed then, except to super users.
        """
        if self.mode is AuthorizerMode.OFF:
            return None
        principal = user_principal(client.user)
        if principal in self._super_users:
            return None
        source = self._source
        if not source.is_known:
            if self.mode is AuthorizerMode.SHADOW:
                return None
            raise Unavailable("the access control lists are not known yet")
        if self._index is None or self._sequence != source.sequence:
            self._index, self._sequence = AclIndex(source.bindings), source.sequence
            self._forget()
        results = self._results.get((principal, client.host))
        if results is None:
            if len(self._results) >= RIGHTS_MAX:
                self._forget()
            results = _Results(self._index.rights(principal, client.host))
            self._results[principal, client.host] = results
        return Access(self, client, principal, api_key, results)

    def compute(self, results: _Results, resource: tuple[ResourceType, str]) -> Operations:
        """Compute a result that is not cached. Cache it, unless the name is longer than any binding's.

        Clients choose the names, and may send many of 32 KiB and more.
        """
        found, length = results.rights.operations(*resource), len(resource[1])
        if length > NAME_LENGTH_MAX:
            return found
        if self._result_count >= RESULTS_MAX:
            self._forget()
        self._result_count += 1 + length // CHARACTERS_PER_RESULT
        results.by_resource[resource] = found
        return found

    def record(self, denial: Denial) -> None:
        """Report a denial."""
        self._denials.record(denial)

    def _forget(self) -> None:
        for each in self._results.values():
            each.by_resource.clear()  # a request in progress may still use its results
        self._results.clear()
        self._result_count = 0


class Access:
    """The operations that one client may do during one request."""

    __slots__ = ("_api_key", "_authorizer", "_client", "_is_enforced", "_principal", "_results")

    def __init__(self, authorizer: Authorizer, client: Client, principal: str, api_key: int, results: _Results) -> None:
        self._authorizer = authorizer
        self._client = client
        self._principal = principal
        self._api_key = api_key
        self._results = results
        self._is_enforced = authorizer.mode is AuthorizerMode.ON

    def allows(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME, *, reports: bool = True
    ) -> bool:
        """Whether the client may do this. A denial is reported, unless the request did not ask for the resource.

        In shadow mode the answer is always yes.
        """
        if self._operations(resource_type, name) >> operation & 1:
            return True
        if reports:
            self._report(operation, resource_type, name)
        return not self._is_enforced

    def grants(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether bindings allow this, in all modes; reports nothing. For the first of two operations that suffice."""
        return bool(self._operations(resource_type, name) >> operation & 1)

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this on some resource of the type. A denial is reported without a name."""
        if self._results.rights.allows_any(operation, resource_type):
            return True
        self._report(operation, resource_type, "")
        return not self._is_enforced

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> Operations:
        """The set of operations that the client may do on a resource; reports nothing."""
        return self._operations(resource_type, name) if self._is_enforced else ALL_OPERATIONS

    def _operations(self, resource_type: ResourceType, name: str) -> Operations:
        resource = (resource_type, name)
        found = self._results.by_resource.get(resource)
        return self._authorizer.compute(self._results, resource) if found is None else found

    def _report(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        client, api = self._client, API_TABLE[self._api_key].name
        denial = Denial(
            self._principal, client.host, api, operation, resource_type, name, self._is_enforced, client.listener
        )
        self._authorizer.record(denial)


class HasAuthorizer(Protocol):
    @property
    def authorizer(self) -> Authorizer: ...
