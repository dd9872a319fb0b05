"""Files of client settings as Kafka's own tools and librdkafka read them: lines of `name=value`."""

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.cli.kafka.profiles import KafkaSettings
from penstock.contracts.errors import Invalid

_LOGIN = re.compile(r'(?P<name>username|password)="(?P<value>(?:[^"\\]|\\.)*)"')
# The names in a file, Kafka's and librdkafka's, and the setting that each means. All others do not matter here.
_NAMES = {
    "bootstrap.servers": "bootstrap",
    "metadata.broker.list": "bootstrap",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.truststore.location": "ca_file",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.keystore.location": "certificate_file",
}
_FILES = ("ca_file", "certificate_file", "key_file")
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")


def read_properties(path: Path) -> KafkaSettings:
    """The settings in the file; `Invalid` if it cannot be read, or has stores of certificates that are not PEM."""
    values = dict(_entries(read_text(path, "the client settings").splitlines()))
    for name in _STORE_TYPES:
        if values.get(name, "PEM").upper() != "PEM":
            raise Invalid(f"{path}: {name}={values[name]} is for Java only; give certificates as PEM files")
    settings = {_NAMES[name]: value for name, value in values.items() if name in _NAMES}
    settings |= _login(values.get("sasl.jaas.config", ""))
    if "security_protocol" in settings:
        settings["security_protocol"] = settings["security_protocol"].upper()
    for name in _FILES:
        if name in settings:
            settings[name] = _located(settings[name], path.parent)
    return KafkaSettings(**settings)


def read_text(path: Path, content: str) -> str:
    """The text of a file that a user names. `Invalid` if it cannot be read; the error names the content."""
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot read {content} in {path}: {error.strerror}") from None
    except UnicodeDecodeError:  # without its text, which has a part of the content
        raise Invalid(f"cannot read {content} in {path}: it is not text in UTF-8") from None


def _entries(lines: list[str]) -> Mapping[str, str]:
    found = {}
    for line in lines:
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", "!")):
            found[name.strip()] = value.strip()
    return found


def _login(text: str) -> dict[str, str]:
    """The user and the password in a JAAS configuration."""
    return {found["name"]: re.sub(r"\\(.)", r"\1", found["value"]) for found in _LOGIN.finditer(text)}


def _located(name: str, folder: Path) -> str:
    """The path of a file that is named relative to the settings or to the working directory."""
    beside = folder / Path(name).expanduser()
    return str((beside if beside.exists() else Path(name).expanduser()).absolute())
