"""Configurations of one broker: those of Kafka that change at run time and need no effect here (ADR 0069). Pure.

They are kept among the cluster's configurations, by names with the broker's id: `penstock.broker.7.num.io.threads`.
"""

import re
from collections.abc import Callable, Iterable

import msgspec

from penstock.contracts.configs.unsupported_topics import InertConfig, config_of
from penstock.contracts.configs.values import INT_MAX, LONG_MAX, TopicConfig, decimal, only, ratio

BROKER_VALUE_LENGTH_MAX = 255  # characters, so that all of them fit into every answer with the cluster's configurations
_PREFIX = "penstock.broker."
_KEPT_NAME = re.compile(r"penstock\.broker\.(0|[1-9][0-9]{0,9})\.(.+)", re.ASCII)

_NO_THREADS = "Gateways have no pools of threads."
_NO_CLEANER = "Compactors clean logs, with their own settings."
_NO_LOGS = "Records belong to no broker. Set the topics' own configurations."
_NO_REPLICAS = "There are no replicas: the object store keeps the copies."
_NO_KERBEROS = "There is no login with Kerberos."
_NO_LOGIN = "Brokers do not log in to each other."
_NO_BUFFERS = "Coordinators write no logs, so they have no buffers for them."
_NO_OFFLOAD = "The state machine makes assignments, and no thread waits for them."
_TIERED = "All data is in the object store, and there is no second tier."


def _policies(value: str) -> str:
    found = [item.strip(" ") for item in value.split(",")] if value else []
    is_good = len(found) == len(set(found)) and {*found} <= {"compact", "delete"}
    return "" if is_good else "must be delete, compact, both with a comma between, or empty"


def _int(name: str, default: str, low: int, reason: str) -> InertConfig:
    return InertConfig(name, "INT", default, low, INT_MAX, reason)


def _long(name: str, default: str, low: int, reason: str) -> InertConfig:
    return InertConfig(name, "LONG", default, low, LONG_MAX, reason)


def _short(name: str, default: str, reason: str) -> InertConfig:
    return InertConfig(name, "SHORT", default, 0, 2**15 - 1, reason)


def _double(name: str, default: str, reason: str) -> InertConfig:
    return _checked(name, "DOUBLE", default, reason, decimal)


def _text(name: str, default: str, reason: str) -> InertConfig:
    return _checked(name, "STRING", default, reason, lambda value: "")


def _checked(name: str, kind: str, default: str, reason: str, check: Callable[[str], str]) -> InertConfig:
    return InertConfig(name, kind, default, 0, 0, reason, validation_error=check)


def _flag(name: str, default: str, reason: str) -> InertConfig:
    return InertConfig(name, "BOOLEAN", default, 0, 0, reason)


# Kafka's defaults and bounds; an empty default is none.
INERT_BROKER_CONFIGS: dict[str, InertConfig] = {
    config.name: config
    for config in (
        _int("background.threads", "10", 1, _NO_THREADS),
        _int("num.io.threads", "8", 1, _NO_THREADS),
        _int("num.network.threads", "3", 1, _NO_THREADS),
        _int("num.recovery.threads.per.data.dir", "2", 1, _NO_THREADS),
        _int("num.replica.fetchers", "1", 1, _NO_REPLICAS),
        _long("follower.replication.throttled.rate", str(LONG_MAX), 0, _NO_REPLICAS),
        _long("leader.replication.throttled.rate", str(LONG_MAX), 0, _NO_REPLICAS),
        _long("replica.alter.log.dirs.io.max.bytes.per.second", str(LONG_MAX), 0, _NO_REPLICAS),
        _int("min.insync.replicas", "1", 1, _NO_REPLICAS),
        _flag("unclean.leader.election.enable", "false", _NO_REPLICAS),
        _long("log.cleaner.backoff.ms", "15000", 0, _NO_CLEANER),
        _long("log.cleaner.dedupe.buffer.size", "134217728", 0, _NO_CLEANER),
        _double("log.cleaner.io.buffer.load.factor", "0.9", _NO_CLEANER),
        _int("log.cleaner.io.buffer.size", "524288", 0, _NO_CLEANER),
        _double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", _NO_CLEANER),
        _int("log.cleaner.threads", "1", 0, _NO_CLEANER),
        _long("log.cleaner.delete.retention.ms", "86400000", 0, _NO_LOGS),
        _long("log.cleaner.max.compaction.lag.ms", str(LONG_MAX), 1, _NO_LOGS),
        _checked("log.cleaner.min.cleanable.ratio", "DOUBLE", "0.5", _NO_LOGS, ratio),
        _long("log.cleaner.min.compaction.lag.ms", "0", 0, _NO_LOGS),
        _checked("log.cleanup.policy", "LIST", "delete", _NO_LOGS, _policies),
        _long("log.flush.interval.messages", str(LONG_MAX), 1, _NO_LOGS),
        _long("log.flush.interval.ms", "", 0, _NO_LOGS),
        _int("log.index.interval.bytes", "4096", 0, _NO_LOGS),
        _int("log.index.size.max.bytes", "10485760", 4, _NO_LOGS),
        _long("log.message.timestamp.after.max.ms", "3600000", 0, _NO_LOGS),
        _long("log.message.timestamp.before.max.ms", str(LONG_MAX), 0, _NO_LOGS),
        _checked("log.message.timestamp.type", "STRING", "CreateTime", _NO_LOGS, only("CreateTime", "LogAppendTime")),
        _flag("log.preallocate", "false", _NO_LOGS),
        _long("log.roll.jitter.ms", "", 0, _NO_LOGS),
        _long("log.roll.ms", "", 1, _NO_LOGS),
        _int("log.segment.bytes", "1073741824", 1_048_576, _NO_LOGS),
        _long("log.segment.delete.delay.ms", "60000", 0, _NO_LOGS),
        _flag("follower.fetch.last.tiered.offset.enable", "false", _TIERED),
        _long("log.local.retention.bytes", "-2", -2, _TIERED),
        _long("log.local.retention.ms", "-2", -2, _TIERED),
        _long("log.remote.copy.lag.bytes", "-1", -1, _TIERED),
        _long("log.remote.copy.lag.ms", "0", -1, _TIERED),
        _int("remote.fetch.max.wait.ms", "500", 1, _TIERED),
        _long("remote.list.offsets.request.timeout.ms", "30000", 1, _TIERED),
        _long("remote.log.index.file.cache.total.size.bytes", "1073741824", 1, _TIERED),
        _int("remote.log.manager.copier.thread.pool.size", "10", 1, _TIERED),
        _long("remote.log.manager.copy.max.bytes.per.second", str(LONG_MAX), 1, _TIERED),
        _int("remote.log.manager.expiration.thread.pool.size", "10", 1, _TIERED),
        _long("remote.log.manager.fetch.max.bytes.per.second", str(LONG_MAX), 1, _TIERED),
        _int("remote.log.manager.follower.thread.pool.size", "2", 1, _TIERED),
        _int("remote.log.reader.threads", "10", 1, _TIERED),
        _text("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", _NO_KERBEROS),
        _long("sasl.kerberos.min.time.before.relogin", "60000", 0, _NO_KERBEROS),
        _checked("sasl.kerberos.principal.to.local.rules", "LIST", "DEFAULT", _NO_KERBEROS, lambda value: ""),
        _text("sasl.kerberos.service.name", "", _NO_KERBEROS),
        _double("sasl.kerberos.ticket.renew.jitter", "0.05", _NO_KERBEROS),
        _double("sasl.kerberos.ticket.renew.window.factor", "0.8", _NO_KERBEROS),
        _short("sasl.login.refresh.buffer.seconds", "300", _NO_LOGIN),
        _short("sasl.login.refresh.min.period.seconds", "60", _NO_LOGIN),
        _double("sasl.login.refresh.window.factor", "0.8", _NO_LOGIN),
        _double("sasl.login.refresh.window.jitter", "0.05", _NO_LOGIN),
        _int("group.coordinator.cached.buffer.max.bytes", "1048588", 524_288, _NO_BUFFERS),
        _int("share.coordinator.cached.buffer.max.bytes", "1048588", 524_288, _NO_BUFFERS),
        _flag("group.consumer.assignor.offload.enable", "true", _NO_OFFLOAD),
        _flag("group.share.assignor.offload.enable", "true", _NO_OFFLOAD),
        _flag("group.streams.assignor.offload.enable", "true", _NO_OFFLOAD),
    )
}


def _with_short_values(config: TopicConfig) -> TopicConfig:
    def validation_error(value: str) -> str:
        if len(value) > BROKER_VALUE_LENGTH_MAX:
            return f"has more than {BROKER_VALUE_LENGTH_MAX} characters"
        return config.validation_error(value)

    return msgspec.structs.replace(config, validation_error=validation_error)


# By the names that a broker has for them.
BROKER_CONFIGS: dict[str, TopicConfig] = {
    inert.name: _with_short_values(config_of(inert)) for inert in INERT_BROKER_CONFIGS.values()
}


def kept_name(broker_id: int, name: str) -> str:
    """The name among the cluster's configurations for a configuration of this broker."""
    return f"{_PREFIX}{broker_id}.{name}"


def is_of_broker(name: str) -> bool:
    """Whether one of the cluster's configurations has the form of those of one broker."""
    return name.startswith(_PREFIX)


def config_of_kept(name: str) -> TopicConfig | None:
    """The configuration that is kept by this name; None if there is no such one."""
    found = _KEPT_NAME.fullmatch(name)
    return BROKER_CONFIGS.get(found[2]) if found and int(found[1]) <= INT_MAX else None


def configs_of_broker(broker_id: int, cluster_configs: dict[str, str]) -> dict[str, str]:
    """The configurations of one broker by their own names, out of the cluster's."""
    prefix = kept_name(broker_id, "")
    return {name.removeprefix(prefix): value for name, value in cluster_configs.items() if name.startswith(prefix)}


def number_of_kept(names: Iterable[str]) -> int:
    """The number of configurations of single brokers among the cluster's."""
    return sum(map(is_of_broker, names))
