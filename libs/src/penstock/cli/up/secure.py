"""`penstock up --secure`: a certificate authority, a certificate for the listener, and an administrator.

The files are made at the first start, and later starts keep them. `client.properties` is all that a Kafka client needs.
"""

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.identities.client_files import (
    ADMINISTRATOR,
    LIBRDKAFKA_FILE,
    PASSWORD_FILE,
    PROPERTIES_FILE,
    SECRET_BYTES,
    java_properties,
    librdkafka_settings,
    login_secret,
)
from penstock.cli.ports import Address
from penstock.contracts.commands import Rejected
from penstock.contracts.commands.security import AlterScramCredentials, ScramMechanism, ScramUpsertion
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.scram_keys import verifier_of_password
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy

if TYPE_CHECKING:
    from penstock.cli.identities.certificates import Identity

FOLDER = "secure"
ITERATIONS = 8_192
COMMAND_DEADLINE_S = 60.0  # a new cluster reaches the level of users after some seconds
_AUTHORITY, _SERVER = "ca", "server"
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1")


class SecureFiles(msgspec.Struct, frozen=True):
    """The files in the folder, and the administrator's password."""

    folder: Path
    password: str

    def __repr__(self) -> str:
        """Only the folder: the password is a secret."""
        return f"SecureFiles({str(self.folder)!r})"

    @property
    def properties(self) -> Path:
        """The settings of Kafka's own tools."""
        return self.folder / PROPERTIES_FILE

    @property
    def librdkafka(self) -> Path:
        """The settings of clients on librdkafka, such as kcat -F."""
        return self.folder / LIBRDKAFKA_FILE

    def gateway_settings(self, kafka: Address, advertised: Address | None) -> dict[str, str]:
        """The settings of a gateway with this one listener."""
        return {
            "LISTENERS": f"SASL_SSL://{kafka}",
            "ADVERTISED_LISTENERS": f"SASL_SSL://{advertised}" if advertised is not None else "",
            "LISTENER_SECURITY_PROTOCOL_MAP": "",
            "SSL_KEYSTORE_CERTIFICATE_CHAIN": str(self.folder / f"{_SERVER}.pem"),
            "SSL_KEYSTORE_KEY": str(self.folder / f"{_SERVER}-key.pem"),
            "SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512",
            "SASL_LOGIN_SECRET": login_secret(self.password),
            "AUTHORIZER": "on",
            "AUDIT": "on",
            "SUPER_USERS": f"User:{ADMINISTRATOR}",
        }


def make_secure_files(
    data: Path, kafka: Address, advertised: Address | None, clock: Clock, entropy: Entropy
) -> SecureFiles:
    """Make what is missing or nearly ends; `Invalid` if that is not possible."""
    folder = data / FOLDER
    now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        _keep_certificates(folder, _hosts(kafka, advertised), now)
        password = _read(folder / PASSWORD_FILE).strip() or entropy.take(SECRET_BYTES).hex()
        _write(folder / PASSWORD_FILE, password + "\n")
        files = SecureFiles(folder, password)
        ca = folder / f"{_AUTHORITY}.pem"
        _write(files.properties, java_properties(ca, password))
        _write(files.librdkafka, librdkafka_settings(str(advertised or kafka), ca, password))
    except OSError as error:
        raise Invalid(f"cannot write the files of --secure in {folder}: {error.strerror}") from error
    return files


def _keep_certificates(folder: Path, hosts: list[str], now: datetime.datetime) -> None:
    from penstock.cli.identities.certificates import is_good, new_authority, new_certificate  # only --secure needs them

    authority = _found(folder, _AUTHORITY)
    if not is_good(authority, authority, now):
        authority = new_authority("Penstock authority", now)
        _keep(folder, _AUTHORITY, authority)
    if not is_good(_found(folder, _SERVER), authority, now, hosts):
        _keep(folder, _SERVER, new_certificate(authority, "Penstock gateway", now, hosts=hosts, is_client=False))


async def make_administrator(client: SequencerClient, files: SecureFiles, clock: Clock, entropy: Entropy) -> None:
    """Give the administrator the password in the folder; `Unavailable` if no sequencer takes it in time."""
    password, salt = files.password.encode(), entropy.take(SECRET_BYTES)
    verifier = verifier_of_password(ScramMechanism.SHA_512, password, salt, ITERATIONS)
    command = AlterScramCredentials(clock.now_ms(), [ScramUpsertion(ADMINISTRATOR, verifier)], [])
    (outcome,) = await client.command([command], deadline_s=COMMAND_DEADLINE_S)
    if isinstance(outcome, Rejected):
        raise Unavailable(f"the administrator cannot be made: {outcome.message or outcome.rejection.name}")


def how_to_connect(files: SecureFiles, address: Address) -> Iterable[str]:
    """Lines for the terminal; the password is in the files only."""
    yield f"logins are on: the administrator is {ADMINISTRATOR}, the password is in {files.folder / PASSWORD_FILE}"
    yield f"Kafka's tools: --bootstrap-server {address} --command-config {files.properties}"
    yield f"librdkafka: kcat -F {files.librdkafka} -L"


def _hosts(kafka: Address, advertised: Address | None) -> list[str]:
    named = [address.host for address in (kafka, advertised) if address is not None]
    return list(dict.fromkeys((*named, *_OWN_HOSTS)))


def _found(folder: Path, name: str) -> "Identity":
    from penstock.cli.identities.certificates import Identity

    return Identity(_read(folder / f"{name}.pem"), _read(folder / f"{name}-key.pem"))


def _keep(folder: Path, name: str, identity: "Identity") -> None:
    _write(folder / f"{name}-key.pem", identity.key)
    _write(folder / f"{name}.pem", identity.certificate)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(path: Path, text: str) -> None:
    """Write the file, which is private from its creation on, in one step."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
