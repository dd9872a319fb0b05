"""Profiles: addresses and logins of clusters under names, in one file of the user, `profiles.yaml`."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.contracts.errors import Invalid

FOLDER_VARIABLE = "XDG_CONFIG_HOME"
FILE_NAME = "profiles.yaml"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
OAUTHBEARER = "OAUTHBEARER"  # with a token that the caller has; no profile and no flag has it


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The address of a cluster's Kafka listener and how a client logs in there; "" is not set."""

    bootstrap: str = ""  # HOST:PORT, with commas
    security_protocol: str = ""
    sasl_mechanism: str = ""
    username: str = ""
    password: str = ""
    password_file: str = ""  # read when a command connects; in place of the password
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    schema_registry: str = ""  # http://HOST:PORT, perhaps with USER:PASSWORD@
    schema_registry_password_file: str = ""
    schema_registry_ca_file: str = ""

    def over(self, other: "KafkaSettings") -> "KafkaSettings":
        """These settings where they are set, the other ones elsewhere."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
        if "password" in own or "password_file" in own:
            other = msgspec.structs.replace(other, password="", password_file="")
        if "schema_registry" in own:  # a login is for the address that it was given for
            other = msgspec.structs.replace(other, schema_registry_password_file="", schema_registry_ca_file="")
        return msgspec.structs.replace(other, **own)


class Profiles(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The contents of the file; `current` is the profile of commands that name none."""

    current: str = ""
    profiles: dict[str, KafkaSettings] = {}


def profiles_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of the user's file."""
    folder = environ.get(FOLDER_VARIABLE) or os.path.expanduser("~/.config")
    return Path(folder) / "penstock" / FILE_NAME


def read_profiles(path: Path) -> Profiles:
    """The contents of the file, empty if there is none; `Invalid` if it cannot be read."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=Profiles)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise Invalid(f"{path} is no file of profiles: {error}") from error


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replace the file. Only its user can read it, as it may have passwords."""
    unfinished = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.touch(mode=0o600)
        unfinished.chmod(0o600)
        unfinished.write_bytes(msgspec.yaml.encode(profiles))
        unfinished.replace(path)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}") from error


def named_profile(profiles: Profiles, name: str) -> KafkaSettings:
    """The settings of a profile; `Invalid` if there is none of this name."""
    found = profiles.profiles.get(name)
    if found is None:
        known = ", ".join(sorted(profiles.profiles)) or "there are none"
        raise Invalid(f"no profile {name!r}; known profiles: {known}")
    return found
