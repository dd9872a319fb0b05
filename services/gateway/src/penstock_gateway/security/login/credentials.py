"""The verifiers of users, and made-up ones for unknown users, so that both fail alike."""

import hmac
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.security import User
from penstock.contracts.scram_keys import HASHES
from penstock_gateway.security.login.exchange import TENANT_END

ITERATIONS = 4_096  # the default of Kafka's tools, for made-up verifiers while there are no users
# The Java client makes a salt of 130 random bits, written with digits and small letters.
JAVA_SALT_BITS = 130
_JAVA_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_JAVA_SALT_SIZES = range(20, 27)

# Mechanism, iterations, and the bytes of the salt; 0 bytes: a salt of the Java client.
_Shape = tuple[ScramMechanism, int, int]


class Credentials(Protocol):
    """The users of the cluster, as this gateway knows them."""

    @property
    def is_known(self) -> bool:
        """Whether a sequencer has answered once."""

    @property
    def sequence(self) -> int:
        """The entry of the newest change that is applied."""

    def verifier(self, user: str, mechanism: ScramMechanism) -> ScramVerifier | None: ...

    def users(self) -> Iterable[User]: ...


class VerifierSource(Protocol):
    """Finds a verifier for every name."""

    def find(self, user: str, mechanisms: Sequence[ScramMechanism]) -> ScramVerifier: ...


class Verifiers:
    """Finds a verifier for every name: the user's own, or else a made-up one that no password fits.

    A made-up verifier has the salt size and iterations of some real ones, and stays the same for its name. All gateways
    with the same secret make up the same ones.
    """

    def __init__(self, credentials: Credentials, secret: bytes) -> None:
        self._credentials = credentials
        self._secret = secret
        self._shapes: Sequence[_Shape] = ()
        self._shapes_sequence = -1

    def find(self, user: str, mechanisms: Sequence[ScramMechanism]) -> ScramVerifier:
        """The first verifier of the user that has one of the mechanisms; `Unavailable` while users are not known."""
        if not self._credentials.is_known:
            raise Unavailable("the users are not known yet")
        # For known users, too, so that all take the same time.
        made_up = _made_up(self._secret, user, mechanisms, self.shapes())
        for mechanism in mechanisms:
            verifier = self._credentials.verifier(user, mechanism)
            if verifier is not None:
                return verifier
        return made_up

    @property
    def is_known(self) -> bool:
        """Whether the users are known."""
        return self._credentials.is_known

    def shapes(self) -> Sequence[_Shape]:
        """The shapes of all real verifiers."""
        if self._shapes_sequence != self._credentials.sequence:
            self._shapes_sequence = self._credentials.sequence
            self._shapes = sorted(
                {_shape(verifier) for user in self._credentials.users() for verifier in user.verifiers}
            )
        return self._shapes


class TenantDecoys:
    """Makes up a verifier for each user of a tenant that does not exist, like that of an unknown user.

    It has the shape of some real ones of one cluster, which the name of the tenant chooses. So a client cannot find out
    which tenants exist from the iterations and salts that it gets.
    """

    def __init__(self, served: Callable[[], Sequence[Verifiers]], secret: bytes) -> None:
        """`served` returns the verifiers of all clusters, always in the same order."""
        self._served = served
        self._secret = secret

    def find(self, user: str, mechanisms: Sequence[ScramMechanism]) -> ScramVerifier:
        """The verifier of a `tenant/user`; `Unavailable` while the users of its cluster are not known."""
        served = self._served()
        if not served:
            raise Unavailable("no cluster is served yet")
        tenant = user.partition(TENANT_END)[0]
        chosen = served[int.from_bytes(_bytes(self._secret, "tenant", tenant, 8)) % len(served)]
        if not chosen.is_known:
            raise Unavailable("the users are not known yet")
        return _made_up(self._secret, user, mechanisms, chosen.shapes())


def _made_up(
    secret: bytes, user: str, mechanisms: Sequence[ScramMechanism], known_shapes: Sequence[_Shape]
) -> ScramVerifier:
    shapes = [shape for shape in known_shapes if shape[0] in mechanisms]
    shapes = shapes or [(mechanisms[0], ITERATIONS, 0)]
    choice = int.from_bytes(_bytes(secret, "shape", user, 8))
    mechanism, iterations, salt_bytes = shapes[choice % len(shapes)]
    salt = _bytes(secret, f"salt {mechanism}", user, salt_bytes or JAVA_SALT_BITS // 8 + 1)
    if not salt_bytes:
        salt = _java_salt(salt)
    size = len(hmac.digest(b"", b"", HASHES[mechanism]))
    # No password has this stored key: its key would have to be found by chance.
    return ScramVerifier(
        mechanism, iterations, salt, _bytes(secret, "stored", user, size), _bytes(secret, "server", user, size)
    )


def _bytes(secret: bytes, purpose: str, user: str, count: int) -> bytes:
    blocks = range(0, count, 64)
    made = b"".join(hmac.digest(secret, f"{purpose} {each} {user}".encode(), "sha512") for each in blocks)
    return made[:count]


def _shape(verifier: ScramVerifier) -> _Shape:
    is_java = len(verifier.salt) in _JAVA_SALT_SIZES and not verifier.salt.strip(_JAVA_DIGITS)
    return verifier.mechanism, verifier.iterations, 0 if is_java else len(verifier.salt)


def _java_salt(random: bytes) -> bytes:
    """A salt as the Java client writes it, from these bytes."""
    number = int.from_bytes(random) % 2**JAVA_SALT_BITS
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(_JAVA_DIGITS))
        digits.append(_JAVA_DIGITS[digit])
    return bytes(reversed(digits))
