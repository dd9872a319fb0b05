"""Access control lists on the wire: Kafka's codes as bindings and filters, and the reasons why some are neither."""

import enum
from typing import TypeVar

from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.security_rules import binding_validation_error
from penstock.kafkawire.api.create_acls import AclCreation
from penstock.kafkawire.api.delete_acls import DeleteAclsFilter
from penstock.kafkawire.api.describe_acls import DescribeAclsRequest

Code = TypeVar("Code", bound=enum.IntEnum)


def binding_of(creation: AclCreation) -> AclBinding | str:
    """The binding to create, or the reason why it is invalid."""
    resource_type = _known(ResourceType, creation.resource_type)
    if resource_type is None:
        return "Invalid resourceType UNKNOWN"
    pattern_type = _known(PatternType, creation.resource_pattern_type)
    if pattern_type is None:
        return "Invalid patternType UNKNOWN"
    operation = _known(AclOperation, creation.operation)
    if operation is None:
        return "Invalid operation UNKNOWN"
    permission = _known(AclPermission, creation.permission_type)
    if permission is None:
        return "Invalid permissionType UNKNOWN"
    name, principal, host = creation.resource_name, creation.principal, creation.host
    binding = AclBinding(resource_type, name, pattern_type, principal, host, operation, permission)
    return binding_validation_error(binding) or binding


def filter_of(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter | str:
    """The filter, or the reason why it is invalid."""
    resource_type = _known(ResourceType, asked.resource_type_filter)
    pattern_type = _known(PatternType, asked.pattern_type_filter)
    operation = _known(AclOperation, asked.operation)
    permission = _known(AclPermission, asked.permission_type)
    if resource_type is None or pattern_type is None:
        return "Unknown patternFilter."
    if operation is None or permission is None:
        return "Unknown entryFilter."
    names = (asked.principal_filter, asked.host_filter)
    return AclFilter(resource_type, asked.resource_name_filter, pattern_type, *names, operation, permission)


def _known(kind: type[Code], code: int) -> Code | None:
    try:
        return kind(code)
    except ValueError:
        return None
