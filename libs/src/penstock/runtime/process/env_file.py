"""Files of NAME=value lines with the settings and secrets of a process; its environment has priority over them."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from penstock.contracts.errors import Invalid

ENVIRONMENT_PREFIX = "PENSTOCK_"
ENV_FILE_VARIABLE = f"{ENVIRONMENT_PREFIX}ENV_FILE"
ACCESS_KEY_VARIABLE = "AWS_ACCESS_KEY_ID"
SECRET_KEY_VARIABLE = "AWS_SECRET_ACCESS_KEY"  # noqa: S105  the name of one
_STORE_KEYS = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMENT = re.compile(r"\s#")
_SINGLE = re.compile(r"'(?P<value>[^']*)'[ \t]*(?:#.*)?")
_DOUBLE = re.compile(r'"(?P<value>(?:[^"\\]|\\["\\])*)"[ \t]*(?:#.*)?')


class EnvFile(msgspec.Struct, frozen=True):
    """The contents of a file: settings by variable, and the keys to the store if it has them."""

    settings: Mapping[str, str]
    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        """Only the names: the values may be secrets."""
        return f"EnvFile({', '.join(self.settings)})"


NO_FILE = EnvFile({})


def read_env_file(path: str) -> EnvFile:
    """Read the file at `path`; an empty path means an empty file. The text of `Invalid` contains no values."""
    if not path:
        return NO_FILE
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot read the env file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"the env file {path} is not text in utf-8") from error
    values = parse_env(text, path)
    _check_names(values, path)
    return EnvFile(
        {name: value for name, value in values.items() if name.startswith(ENVIRONMENT_PREFIX)},
        values.get(ACCESS_KEY_VARIABLE, ""),
        values.get(SECRET_KEY_VARIABLE, ""),
    )


def parse_env(text: str, source: str) -> dict[str, str]:
    """The values of NAME=value lines, in their order.

    Blank lines are ignored. A comment begins with a `#` at the start of a line or after a blank. A value in single
    quotes is taken literally. In double quotes, a backslash escapes a quote or a backslash.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        where = f"line {number} of {source}"
        name, equals, value = written.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise Invalid(f"{where} is not NAME=value")
        if name in values:
            raise Invalid(f"{where} sets {name} again")
        values[name] = _unquoted(value, f"{where}: the value of {name}")
    return values


def with_store_keys(store_url: str, file: EnvFile, environ: Mapping[str, str]) -> str:
    """`store_url`, with the file's keys added if it is an S3 URL, and neither it nor the environment has keys."""
    if not file.access_key or not store_url.startswith("s3:") or any(environ.get(name) for name in _STORE_KEYS):
        return store_url
    query = urlsplit(store_url).query
    if "access_key" in dict(parse_qsl(query, keep_blank_values=True)):
        return store_url
    joint = "&" if query else "" if store_url.endswith("?") else "?"
    return f"{store_url}{joint}{urlencode({'access_key': file.access_key, 'secret_key': file.secret_key})}"


def _unquoted(value: str, what: str) -> str:
    quoted = value.lstrip()
    if quoted[:1] not in ("'", '"'):
        return _COMMENT.split(value, 1)[0].strip()
    found = (_SINGLE if quoted[0] == "'" else _DOUBLE).fullmatch(quoted)
    if found is None:
        raise Invalid(f"{what} has no closing quote, or a backslash that escapes nothing")
    return re.sub(r"\\(.)", r"\1", found["value"]) if quoted[0] == '"' else found["value"]


def _check_names(values: Mapping[str, str], path: str) -> None:
    if ENV_FILE_VARIABLE in values:
        raise Invalid(f"{path} names another env file, but only one env file is read")
    for name in values:
        if name.startswith("AWS_") and name not in _STORE_KEYS:
            raise Invalid(
                f"{path} sets {name}, but of the AWS variables only {' and '.join(_STORE_KEYS)} can be in a file"
            )
    if len([name for name in _STORE_KEYS if values.get(name)]) == 1:
        raise Invalid(f"{path} has only one of {' and '.join(_STORE_KEYS)}")
