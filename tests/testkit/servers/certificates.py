"""Certificates for tests of TLS: an authority, and certificates of servers and clients that it signs."""

import datetime
import ipaddress
import os
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder; `certificate` is its own file."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = x509.Name.from_rfc4514_string(f"CN={name}")
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = _now()
        own = (
            x509.CertificateBuilder(self._name, self._name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.pem"
        self.certificate.write_bytes(own.public_bytes(Encoding.PEM))

    def issue(
        self,
        file: str,
        subject: str = "CN=localhost",
        *,
        usage: x509.ObjectIdentifier = SERVER,
        days: int = 10,
        password: str = "",
        alternative: str = "127.0.0.1",
    ) -> Pair:
        """Sign a certificate for `days` from now (fewer than none: expired), and write it and its key over `file`."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = _now()
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(alternative)), x509.DNSName("localhost")]
        certificate = (
            x509.CertificateBuilder(
                self._name, x509.Name.from_rfc4514_string(subject), key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(now - 20 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(_key_usage(signs=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        encryption: KeySerializationEncryption = (
            BestAvailableEncryption(password.encode()) if password else NoEncryption()
        )
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}.key")
        _replace(pair.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        _replace(pair.certificate, certificate.public_bytes(Encoding.PEM))
        return pair

    def client_context(self, own: Pair | None = None) -> ssl.SSLContext:
        """The context of a client that trusts this authority, and shows its own certificate if it has one."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context


def tls_settings(pair: Pair, **others: object) -> dict[str, object]:
    """The settings of a gateway's listeners with this certificate."""
    return {
        "ssl_keystore_certificate_chain": str(pair.certificate),
        "ssl_keystore_key": str(pair.key),
        **{name: str(value) for name, value in others.items()},
    }


def _replace(path: Path, data: bytes) -> None:
    """Replace a file at once, as tools for certificates do."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
