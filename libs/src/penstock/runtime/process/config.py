"""Settings of a service: read from flags, environment and a file, checked, and put into a frozen struct."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import DEFAULT_POOL, check_token
from penstock.runtime.clock import Entropy, SystemEntropy
from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.env_file import ENV_FILE_VARIABLE, ENVIRONMENT_PREFIX, read_env_file, with_store_keys
from penstock.runtime.process.landing import with_landing

INSTANCE_ENTROPY_BYTES = 4
BAD_SETTINGS_EXIT_CODE = 2
ALL_CLUSTERS = "*"  # the value of `clusters` for all that are registered
ADVANCED = {"advanced": True}  # `extra` in the Meta of a setting whose default suits every known deployment
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

Port = Annotated[int, Meta(ge=0, le=65_535)]


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that every service has; each service adds its own fields."""

    cluster: Annotated[str, Meta(description="name of the virtual cluster")] = "default"
    zone: Annotated[str, Meta(description="availability zone in which this process runs")] = "z1"
    instance: Annotated[
        str, Meta(description="unique name of this process; empty: the process chooses one", extra=ADVANCED)
    ] = ""
    env_file: Annotated[str, Meta(description="file of NAME=value lines; the environment has priority over it")] = ""
    nats_url: Annotated[
        str, Meta(description="addresses of NATS servers, separated by commas, tried in this order")
    ] = "nats://127.0.0.1:4222"
    nats_user: Annotated[str, Meta(description="user name at the NATS servers")] = ""
    nats_password: Annotated[str, Meta(description="password at the NATS servers")] = ""
    nats_tls_ca: Annotated[
        str, Meta(description="file of certificates that sign those of the NATS servers, for tls:// addresses")
    ] = ""
    nats_tls_certificate: Annotated[str, Meta(description="file of this process's certificate for NATS")] = ""
    nats_tls_key: Annotated[str, Meta(description="file of the key of nats_tls_certificate")] = ""
    store_url: Annotated[
        str,
        Meta(
            description="object store: file:///dir, s3://bucket/prefix?endpoint=..., gs://bucket/prefix or az://container/prefix"
        ),
    ] = "file://./penstock-data/objects"
    http_host: Annotated[str, Meta(description="address on which health and metrics are served")] = "127.0.0.1"
    http_port: Annotated[Port, Meta(description="port on which health and metrics are served; 0: any free port")] = 0
    http_token_file: Annotated[
        str, Meta(description="file with the token that /metrics needs; empty: /metrics is open")
    ] = ""
    log_level: Annotated[str, Meta(description="debug, info, warning or error")] = "info"
    log_format: Annotated[
        str, Meta(description="pretty, json, or auto: pretty on a terminal, else json", extra=ADVANCED)
    ] = "auto"
    drain_deadline_ms: Annotated[
        int, Meta(ge=0, description="time that a stop may take to finish the work in progress", extra=ADVANCED)
    ] = 10_000

    def __post_init__(self) -> None:
        check_token("cluster", self.cluster)
        check_token("zone", self.zone)
        if self.instance:
            check_token("instance", self.instance)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise Invalid(f"log level must be debug, info, warning or error: {self.log_level!r}")
        if self.log_format not in ("auto", "pretty", "json"):
            raise Invalid(f"log format must be auto, pretty or json: {self.log_format!r}")

    def __repr__(self) -> str:
        """Only the instance: some settings are secret, and this text can reach a log."""
        return f"{type(self).__name__}(instance={self.instance!r})"


class HostingConfig(ServiceConfig, frozen=True, kw_only=True):
    """The settings of a service whose process can host several virtual clusters."""

    clusters: Annotated[
        str,
        Meta(
            description="names of the virtual clusters that this process hosts, separated by commas, or * for all that "
            "are registered; empty: only the one of `cluster`"
        ),
    ] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters != ALL_CLUSTERS:
            for name in self.cluster_names:
                check_token("each name in clusters", name)

    @property
    def cluster_names(self) -> list[str]:
        """The names in `clusters`, each once."""
        return list(dict.fromkeys(name.strip() for name in self.clusters.split(","))) if self.clusters else []


class PoolConfig(HostingConfig, frozen=True, kw_only=True):
    """The settings of a service whose instances form pools."""

    pool: Annotated[
        str,
        Meta(description="pool of gateways, flushers and cachers in which this process works; pools share no work"),
    ] = DEFAULT_POOL

    def __post_init__(self) -> None:
        super().__post_init__()
        check_token("pool", self.pool)


Config = TypeVar("Config", bound=ServiceConfig)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as an operator sees it."""

    name: str
    flag: str
    variable: str
    default: Any
    description: str
    is_truth: bool
    is_advanced: bool


def settings_of(kind: type[ServiceConfig]) -> list[Setting]:
    """The settings of a service in the order of its fields, those of every service first."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        Setting(
            name=field.name,
            flag=flag(field.name),
            variable=environment_variable(field.name),
            default=field.default,
            description=_description(hints[field.name]),
            is_truth=_plain(hints[field.name]) is bool,
            is_advanced=any((meta.extra or {}).get("advanced", False) for meta in _metas(hints[field.name])),
        )
        for field in msgspec.structs.fields(kind)
    ]


def read_config(
    kind: type[Config],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str,
    entropy: Entropy | None = None,
) -> Config:
    """Read each setting from its flag, else its variable, else its line in the env file, else its default.

    A flag of a true-or-false setting without a value means true.
    If only the env file has keys to the store, they become part of `store_url`.
    Invalid settings end the process with one sentence and exit code 2; `--help` ends it with 0.
    """
    return read_configs([kind], argv, environ, program=program, entropy=entropy)[0]


def read_configs(
    kinds: Sequence[type[Config]],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str,
    entropy: Entropy | None = None,
) -> list[Config]:
    """The settings of several services in one process, which have the same values where they have the same names."""
    parser = _parser(kinds, program)
    given = vars(parser.parse_args(argv))
    try:
        file = read_env_file(given.get("env_file", environ.get(ENV_FILE_VARIABLE, "")))
        instance = f"{program}-{(entropy or SystemEntropy()).take(INSTANCE_ENTROPY_BYTES).hex()}"
        configs = []
        for kind in kinds:
            values = _values(kind, given, {**file.settings, **environ})
            if "store_url" in values:
                values["store_url"] = with_store_keys(values["store_url"], file, environ)
            config = kind(**values | {"instance": values.get("instance") or instance})
            is_hosting = isinstance(config, HostingConfig) and config.clusters
            configs.append(config if is_hosting else for_cluster(config, config.cluster))
        return configs
    except Invalid as error:
        parser.error(str(error))


def for_cluster(config: Config, cluster: str) -> Config:
    """The settings of a process for one cluster; a landing store at the process's NATS servers is the cluster's own."""
    store_url = with_landing(
        config.store_url,
        cluster=cluster,
        nats_url=config.nats_url,
        user=config.nats_user,
        password=config.nats_password,
        tls=NatsTls(config.nats_tls_ca, config.nats_tls_certificate, config.nats_tls_key),
    )
    return msgspec.structs.replace(config, cluster=cluster, store_url=store_url)


def _values(kind: type[ServiceConfig], given: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Any]:
    """The settings of one service that have a flag or a variable."""
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for field in kind.__struct_fields__:
        variable = environment_variable(field)
        if field in given:
            values[field] = _convert(flag(field), given[field], hints[field])
        elif variable in variables:
            values[field] = _convert(variable, variables[variable], hints[field])
    return values


def flag(field: str) -> str:
    """The command line flag of a field."""
    return f"--{field.replace('_', '-')}"


def environment_variable(field: str) -> str:
    """The environment variable of a field."""
    return f"{ENVIRONMENT_PREFIX}{field.upper()}"


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one sentence."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(BAD_SETTINGS_EXIT_CODE)


def _parser(kinds: Sequence[type[ServiceConfig]], program: str) -> _Parser:
    parser = _Parser(
        prog=program,
        description=f"The Penstock {program}. Every flag can also be given in the environment.",
        allow_abbrev=False,
    )
    settings = {each.name: each for kind in reversed(kinds) for each in settings_of(kind)}
    for each in settings.values():
        default = "" if each.default is msgspec.NODEFAULT else f" (default: {each.default!r})"
        parser.add_argument(
            each.flag,
            dest=each.name,
            metavar="VALUE",
            nargs="?" if each.is_truth else None,
            const="true" if each.is_truth else None,
            default=argparse.SUPPRESS,
            help=f"{each.description} [{each.variable}]{default}".replace("%", "%%"),
        )
    return parser


def _description(hint: Any) -> str:
    texts = [meta.description for meta in _metas(hint) if meta.description]
    return texts[-1] if texts else ""


def _metas(hint: Any) -> list[Meta]:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return [extra for extra in extras if isinstance(extra, Meta)]


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _convert(source: str, text: str, hint: Any) -> Any:
    try:
        return msgspec.convert(text, hint, strict=False)
    except msgspec.ValidationError as error:
        plain = _plain(hint)
        wanted = f"must be {_KINDS.get(plain, plain)}"
        if "got `str`" not in str(error):  # the type is right, but the value is out of bounds
            wanted = str(error).replace("`", "").replace("Expected int", "must be").replace("Expected", "must be")
        raise Invalid(f"{source} {wanted}: {text!r}") from error
