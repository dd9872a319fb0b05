"""Finds the operations that bindings allow on a resource, by the rules of Kafka's StandardAuthorizer. Pure.

A binding that denies wins over all bindings that allow, of any pattern. Operations are sets of bits, one
bit for each operation by its number, as in Kafka's answers (KIP-430).
"""

from collections.abc import Iterable

from penstock.contracts.acls import (
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    canonical_host,
    user_principal,
)

Operations = int  # a set of operations

# Only bindings that allow imply other operations: a denied READ denies no DESCRIBE.
_IMPLIED: dict[AclOperation, tuple[AclOperation, ...]] = {
    AclOperation.READ: (AclOperation.DESCRIBE,),
    AclOperation.WRITE: (AclOperation.DESCRIBE,),
    AclOperation.DELETE: (AclOperation.DESCRIBE,),
    AclOperation.ALTER: (AclOperation.DESCRIBE,),
    AclOperation.ALTER_CONFIGS: (AclOperation.DESCRIBE_CONFIGS,),
}
_EVERY_USER = user_principal(WILDCARD)


def bits(*operations: AclOperation) -> Operations:
    """The set of these operations."""
    found = 0
    for operation in operations:
        found |= 1 << operation
    return found


ALL_OPERATIONS = bits(*(each for each in AclOperation if each > AclOperation.ALL))
NO_OPERATIONS = 0


class _Rule:
    """The operations that the bindings of one pattern deny and allow."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.denied: Operations = NO_OPERATIONS
        self.allowed: Operations = NO_OPERATIONS

    def add(self, binding: AclBinding) -> None:
        """Add the operation of a binding."""
        operation = binding.operation
        everything = operation == AclOperation.ALL
        if binding.permission == AclPermission.DENY:
            self.denied |= ALL_OPERATIONS if everything else bits(operation)
        elif binding.permission == AclPermission.ALLOW:
            self.allowed |= ALL_OPERATIONS if everything else bits(operation, *_IMPLIED.get(operation, ()))


class _Patterns:
    """The rules for one type of resources."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rule] = {}
        self.prefixed: dict[str, _Rule] = {}
        self.lengths: tuple[int, ...] = ()  # of the prefixes, in characters, in ascending order

    def add(self, binding: AclBinding) -> None:
        """Add a binding; `freeze` follows the last one."""
        rules = self.prefixed if binding.pattern_type == PatternType.PREFIXED else self.literal
        rules.setdefault(binding.name, _Rule()).add(binding)

    def freeze(self) -> None:
        """Compute the lengths of the prefixes."""
        self.lengths = tuple(sorted({len(prefix) for prefix in self.prefixed}))

    def operations(self, name: str) -> Operations:
        """The operations that are allowed on this resource."""
        denied = allowed = NO_OPERATIONS
        for rule in (self.literal.get(name), self.literal.get(WILDCARD), *self._prefixes(name)):
            if rule is not None:
                denied |= rule.denied
                allowed |= rule.allowed
        return allowed & ~denied

    def _prefixes(self, name: str) -> list[_Rule | None]:
        size = len(name)
        return [self.prefixed.get(name[:length]) for length in self.lengths if length <= size]

    def allows_any(self, wanted: Operations) -> bool:
        """Whether a resource can exist on which these operations are allowed, by Kafka's rules.

        Kafka does not look for such a resource. A denied wildcard denies all. An allowed wildcard, name or prefix
        counts, unless the same name or one of its prefixes is denied.
        """
        every = self.literal.get(WILDCARD)
        if every is not None and every.denied & wanted:
            return False
        if every is not None and every.allowed & wanted:
            return True
        literal = [name for name, rule in self.literal.items() if rule.allowed & wanted and not rule.denied & wanted]
        prefixes = [name for name, rule in self.prefixed.items() if rule.allowed & wanted]
        return any(not self._is_dominated(name, wanted) for name in (*literal, *prefixes))

    def _is_dominated(self, name: str, wanted: Operations) -> bool:
        return any(rule is not None and rule.denied & wanted for rule in self._prefixes(name))


class Rights:
    """The operations that one principal may do from one host."""

    __slots__ = ("_by_type",)

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        """Take the bindings that apply to the principal and the host."""
        self._by_type: dict[ResourceType, _Patterns] = {}
        for binding in bindings:
            self._by_type.setdefault(binding.resource_type, _Patterns()).add(binding)
        for patterns in self._by_type.values():
            patterns.freeze()

    def operations(self, resource_type: ResourceType, name: str) -> Operations:
        """The operations that are allowed on a resource; none without bindings."""
        patterns = self._by_type.get(resource_type)
        return NO_OPERATIONS if patterns is None else patterns.operations(name)

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on at least one resource of the type.

        No other operation may imply it, because Kafka's rule does not count implied operations.
        """
        assert all(operation not in implied for implied in _IMPLIED.values()), f"{operation.name} is implied by others"
        patterns = self._by_type.get(resource_type)
        return patterns is not None and patterns.allows_any(bits(operation))


class AclIndex:
    """Bindings by principal; the rights of a principal are computed when they are first needed."""

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._by_principal: dict[str, list[AclBinding]] = {}
        for binding in bindings:
            self._by_principal.setdefault(binding.principal, []).append(binding)

    def rights(self, principal: str, host: str) -> Rights:
        """The rights of a principal ("User:alice") from an IP address."""
        found = [*self._by_principal.get(principal, ()), *self._by_principal.get(_EVERY_USER, ())]
        address = canonical_host(host)
        return Rights(each for each in found if each.host == WILDCARD or canonical_host(each.host) == address)
