"""The schema and the table of the Helm chart's values, from values.yaml and the settings of the services."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import yaml

from penstock.clusters import ClusterQuotas
from tests.testkit.docs.blocks import Maker, table
from tests.testkit.docs.settings import CONFIGS

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "penstock"
# Settings that the chart makes from other values, and settings that stand in a Secret.
MADE = {
    *(
        "cluster",
        "clusters",
        "zone",
        "instance",
        "env_file",
        "nats_url",
        "nats_tls_ca",
        "nats_tls_certificate",
        "nats_tls_key",
    ),
    *("store_url", "http_host", "http_port", "http_token_file", "drain_deadline_ms", "listeners"),
    *("advertised_listeners", "listener_security_protocol_map", "ssl_keystore_certificate_chain", "ssl_keystore_key"),
    *("delegation_token_secret_key_file", "nats_monitor_url", "listen_host", "listen_port", "bootstrap"),
    *("command_config", "supervisor_url", "secure_cookies", "host_names"),
}
SECRET = {"nats_user", "nats_password", "sasl_login_secret", "delegation_token_secret_key"}

Schema = dict[str, Any]


def camel_case(name: str) -> str:
    """The name of a value of the chart for a name with underscores."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_TEXT: Schema = {"type": "string"}
_MAP: Schema = {"type": "object", "additionalProperties": _TEXT}
_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
_NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$"}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_PROTOCOL: Schema = {"enum": ["SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT"]}
_RESOURCES: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        kind: {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
        for kind in ("requests", "limits")
    },
}
_ZONE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": _NAME,
        "node": _TEXT,
        "externalHost": _TEXT,
        "externalPort": _PORT,
        "nodePort": _PORT,
    },
}
_VARIABLE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "value": _TEXT,
        "valueFrom": {"type": "object"},
    },
}
_TOKEN: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_VIRTUAL_CLUSTER: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": _TOKEN,
        "serverNames": {"type": "array", "items": _TEXT},
        "tenants": {"type": "array", "items": _TOKEN},
        "quotas": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                camel_case(quota): {"type": "integer", "minimum": 0} for quota in ClusterQuotas.__struct_fields__
            },
        },
    },
}
# Values whose schema does not follow from their defaults, by path and by the last name of the path.
BY_PATH: dict[str, Schema] = {
    "cluster": _TOKEN,
    "clusters": {"type": "array", "items": _VIRTUAL_CLUSTER},
    "shape": {"enum": ["separate", "agents"]},
    "zones": {"type": "array", "minItems": 1, "items": _ZONE},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.pullSecrets": {"type": "array", "items": _TEXT},
    "kafka.external.type": {"enum": ["LoadBalancer", "NodePort"]},
    "kafka.external.sourceRanges": {"type": "array", "items": _TEXT},
    "extraEnv": {"type": "array", "items": _VARIABLE},
    "drainDeadlineMs": {"type": "integer", "minimum": 0},
    "preStopSeconds": {"type": "integer", "minimum": 0},
    "nats": {"type": "object", "required": ["enabled"]},  # the official chart has its own
}
BY_NAME: dict[str, Schema] = {
    "securityProtocol": _PROTOCOL,
    "resources": _RESOURCES,
    "annotations": _MAP,
    "labels": _MAP,
    "nodeSelector": _MAP,
    "replicas": {"type": "integer", "minimum": 0},
    "minReplicas": {"type": "integer", "minimum": 1},
    "maxUnavailable": {"type": ["integer", "string"]},
    "whenUnsatisfiable": {"enum": ["ScheduleAnyway", "DoNotSchedule"]},
    "port": _PORT,
    "natsPort": _PORT,
    "storePort": _PORT,
}
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


class Value(NamedTuple):
    """One value of the chart as an operator sees it."""

    path: str
    default: Any
    meaning: str


def makers() -> dict[str, Maker]:
    """The block `values` of the chart's README."""
    return {"values": lambda: table(["value", "default", "meaning"], [_row(each) for each in values()])}


def schema_text() -> str:
    """The content of values.schema.json."""
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **_schema_of("", _read())}
    whole["properties"]["global"] = {"type": "object"}  # Helm adds it
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def values() -> list[Value]:
    """Every value with a comment, in the order of the file."""
    text = (CHART / "values.yaml").read_text()
    return list(_values(yaml.compose(text), text.splitlines(), ""))


def settings_of_chart(service: str) -> dict[str, Any]:
    """The settings that `settings` of a service may have, with their types; of `service` those of every service."""
    hints = get_type_hints(CONFIGS[service], include_extras=True)
    return {name: hints[name] for name in CONFIGS[service].__struct_fields__ if name not in MADE and name not in SECRET}


def _read() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def _schema_of(path: str, value: Any) -> Schema:
    name = path.rpartition(".")[2]
    if name == "settings":
        service = path.partition(".")[0] if "." in path else "service"
        return _object({setting: _setting(hint) for setting, hint in settings_of_chart(service).items()})
    if name == "pods" and path != "pods":
        return _schema_of("pods", _read()["pods"])
    if special := BY_PATH.get(path) or BY_NAME.get(name):
        return special
    if isinstance(value, dict):
        return _object({key: _schema_of(f"{path}.{key}".lstrip("."), each) for key, each in value.items()})
    if isinstance(value, list):
        return _OBJECTS
    return {"type": _TYPES[type(value)]}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _setting(hint: Any) -> Schema:
    """The schema of one setting, with the limits that the service has."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    metas = [each for each in get_args(hint)[1:] if isinstance(each, msgspec.Meta)]
    limits = {"minimum": "ge", "maximum": "le"}
    found = {
        key: getattr(meta, name) for meta in metas for key, name in limits.items() if getattr(meta, name) is not None
    }
    return {"type": _TYPES[kind]} | found


def _values(node: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[Value]:
    """The values below a node. A map without a comment of its own is only a heading."""
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        comment = _comment_above(lines, key.start_mark.line)
        has_parts = _has_comments(value, lines, key.start_mark.line)
        if comment or not has_parts:
            yield Value(path, None if has_parts else yaml.safe_load(yaml.serialize(value)), comment)
        if has_parts:
            yield from _values(value, lines, f"{path}.")


def _has_comments(node: yaml.Node, lines: list[str], line: int) -> bool:
    """Whether a value inside the map has a comment. The parts of an alias stand above `line`, and do not count."""
    return isinstance(node, yaml.MappingNode) and any(
        key.start_mark.line > line
        and (_comment_above(lines, key.start_mark.line) or _has_comments(value, lines, key.start_mark.line))
        for key, value in node.value
    )


def _comment_above(lines: list[str], number: int) -> str:
    found: list[str] = []
    indent = len(lines[number]) - len(lines[number].lstrip())
    for line in reversed(lines[:number]):
        if not line.strip().startswith("#") or len(line) - len(line.lstrip()) != indent:
            break
        found.insert(0, line.strip().removeprefix("#").strip())
    return " ".join(found)


def _row(value: Value) -> list[str]:
    default = "" if value.default is None else f"`{json.dumps(value.default)}`"
    return [f"`{value.path}`", default, value.meaning]
