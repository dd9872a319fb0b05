"""The keys of SCRAM (RFC 5802): from a password or a salted one to the verifier that the cluster keeps. Pure."""

import hashlib
import hmac

from penstock.contracts.commands.security import ScramMechanism, ScramVerifier

HASHES = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}


def verifier_of_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """The verifier of a password; it costs some milliseconds of CPU."""
    return verifier_of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The `SaltedPassword` of a password; it costs some milliseconds of CPU."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def verifier_of_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """The verifier of a salted password (`SaltedPassword`), which must not be empty.

    The salted password is enough to log in, so nothing keeps it.
    """
    name = HASHES[mechanism]
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramVerifier(mechanism, iterations, salt, stored_key, hmac.digest(salted, b"Server Key", name))
