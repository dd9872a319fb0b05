"""Settings of a service: flags, environment and a file into a frozen struct, checked, with help for people."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import check_token
from penstock.runtime.clock import Entropy, SystemEntropy
from penstock.runtime.process.env_file import ENV_FILE_VARIABLE, ENVIRONMENT_PREFIX, read_env_file, with_store_keys

INSTANCE_ENTROPY_BYTES = 4
BAD_SETTINGS_EXIT_CODE = 2
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

Port = Annotated[int, Meta(ge=0, le=65_535)]


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What every service is told; each adds its own fields."""

    cluster: Annotated[str, Meta(description="name of the virtual cluster")] = "default"
    zone: Annotated[str, Meta(description="availability zone this process runs in")] = "z1"
    instance: Annotated[str, Meta(description="unique name of this process; made up when empty")] = ""
    env_file: Annotated[str, Meta(description="file of NAME=value lines; the environment counts more")] = ""
    nats_url: Annotated[str, Meta(description="nats servers, separated by commas")] = "nats://127.0.0.1:4222"
    nats_user: Annotated[str, Meta(description="user at the nats servers")] = ""
    nats_password: Annotated[str, Meta(description="password at the nats servers")] = ""
    store_url: Annotated[str, Meta(description="object store: file:///dir or s3://bucket/prefix?endpoint=...")] = (
        "file://./penstock-data/objects"
    )
    http_host: Annotated[str, Meta(description="address of health and metrics")] = "127.0.0.1"
    http_port: Annotated[Port, Meta(description="port of health and metrics; 0 takes a free one")] = 0
    log_level: Annotated[str, Meta(description="debug, info, warning or error")] = "info"
    log_format: Annotated[str, Meta(description="auto (pretty on a terminal, else json), pretty or json")] = "auto"
    drain_deadline_ms: Annotated[int, Meta(ge=0, description="how long a stop may take to finish what was begun")] = (
        10_000
    )

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
        """Without the settings: some are secret, and this may end up in a log."""
        return f"{type(self).__name__}(instance={self.instance!r})"


Config = TypeVar("Config", bound=ServiceConfig)


def read_config(
    kind: type[Config],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str,
    entropy: Entropy | None = None,
) -> Config:
    """The settings from `--field-name VALUE`, else PENSTOCK_FIELD_NAME, else that in the env file, else the default.

    A flag of a truth alone means that it is so.
    Keys to the store that only the env file has become a part of `store_url`.
    Ends the process with one sentence and exit code 2 if they cannot be right, with 0 after `--help`.
    """
    parser = _parser(kind, program)
    given = vars(parser.parse_args(argv))
    hints = get_type_hints(kind, include_extras=True)
    try:
        file = read_env_file(given.get("env_file", environ.get(ENV_FILE_VARIABLE, "")))
        variables = {**file.settings, **environ}
        values: dict[str, Any] = {}
        for field in kind.__struct_fields__:
            variable = environment_variable(field)
            if field in given:
                values[field] = _convert(flag(field), given[field], hints[field])
            elif variable in variables:
                values[field] = _convert(variable, variables[variable], hints[field])
        if "store_url" in values:
            values["store_url"] = with_store_keys(values["store_url"], file, environ)
        if not values.get("instance"):
            values["instance"] = f"{program}-{(entropy or SystemEntropy()).take(INSTANCE_ENTROPY_BYTES).hex()}"
        return kind(**values)
    except Invalid as error:
        parser.error(str(error))


def flag(field: str) -> str:
    """A field's command line flag."""
    return f"--{field.replace('_', '-')}"


def environment_variable(field: str) -> str:
    """A field's environment variable."""
    return f"{ENVIRONMENT_PREFIX}{field.upper()}"


class _Parser(argparse.ArgumentParser):
    """Complains in one sentence."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(BAD_SETTINGS_EXIT_CODE)


def _parser(kind: type[ServiceConfig], program: str) -> _Parser:
    parser = _Parser(
        prog=program,
        description=f"The Penstock {program}. Every flag can also be given in the environment.",
        allow_abbrev=False,
    )
    hints = get_type_hints(kind, include_extras=True)
    defaults = msgspec.structs.fields(kind)
    for field in defaults:
        default = "" if field.required else f" (default: {field.default!r})"
        is_truth = _plain(hints[field.name]) is bool
        parser.add_argument(
            flag(field.name),
            dest=field.name,
            metavar="VALUE",
            nargs="?" if is_truth else None,
            const="true" if is_truth else None,
            default=argparse.SUPPRESS,
            help=f"{_description(hints[field.name])} [{environment_variable(field.name)}]{default}".replace("%", "%%"),
        )
    return parser


def _description(hint: Any) -> str:
    if get_origin(hint) is not Annotated:
        return ""
    texts = [extra.description for extra in get_args(hint)[1:] if isinstance(extra, Meta) and extra.description]
    return texts[-1] if texts else ""


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _convert(source: str, text: str, hint: Any) -> Any:
    try:
        return msgspec.convert(text, hint, strict=False)
    except msgspec.ValidationError as error:
        plain = _plain(hint)
        wanted = f"must be {_KINDS.get(plain, plain)}"
        if "got `str`" not in str(error):  # the kind is right, the value is out of its bounds
            wanted = str(error).replace("`", "").replace("Expected int", "must be").replace("Expected", "must be")
        raise Invalid(f"{source} {wanted}: {text!r}") from error
