"""Certificate authorities and the certificates that they sign, as PEM texts. Keys are of the curve P-256."""

import datetime
import ipaddress
from collections.abc import Iterable, Sequence

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825
RENEWAL_DAYS = 90  # a certificate that ends sooner is made again by the next run
# A machine whose clock is behind accepts a new certificate.
CLOCK_ERROR = datetime.timedelta(hours=1)


class Identity(msgspec.Struct, frozen=True):
    """A certificate and its key, in PEM."""

    certificate: str
    key: str


def new_authority(name: str, now: datetime.datetime) -> Identity:
    """A certificate authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _signed(builder, key, key)


def new_certificate(
    authority: Identity, name: str, now: datetime.datetime, *, hosts: Sequence[str] = (), is_client: bool = True
) -> Identity:
    """A certificate for a server with these names and addresses, or for a client, or both."""
    issuer, issuer_key = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), issuer.subject, key.public_key(), now, CERTIFICATE_DAYS)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH] * bool(hosts) + [ExtendedKeyUsageOID.CLIENT_AUTH] * is_client
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
    return _signed(builder, key, issuer_key)


def is_good(identity: Identity, authority: Identity, now: datetime.datetime, hosts: Sequence[str] = ()) -> bool:
    """Whether the authority signed the certificate for these hosts, and it does not end soon."""
    try:
        certificate, key = _load(identity)
        certificate.verify_directly_issued_by(_load(authority)[0])
        found = _hosts(certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    is_own = certificate.public_key() == key.public_key()
    ends = certificate.not_valid_after_utc - datetime.timedelta(days=RENEWAL_DAYS)
    return is_own and found == set(_names(hosts)) and ends > now


def _hosts(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_ERROR)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> Identity:
    certificate = builder.sign(issuer_key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


def _load(identity: Identity) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """`ValueError` if one of the two is not of this kind."""
    certificate = x509.load_pem_x509_certificate(identity.certificate.encode())
    key = serialization.load_pem_private_key(identity.key.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is of another kind")
    return certificate, key
