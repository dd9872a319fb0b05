"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677). Pure, and without channel binding.

A login has two steps. The client's first message names the user; the server answers with salt and iterations. The
client's final message proves that the client knows the password; the server's answer proves that it has the verifier.
As in Kafka, names and passwords are plain UTF-8: SASLprep (RFC 4013) is not applied. With the extension
`tokenauth=true` the name is the id of a delegation token (KIP-48). Other extensions are ignored.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import NamedTuple

from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.scram_keys import HASHES, verifier_of_password
from penstock_gateway.security.login.exchange import LoginFailed

SCRAM_NAMES = {"SCRAM-SHA-256": ScramMechanism.SHA_256, "SCRAM-SHA-512": ScramMechanism.SHA_512}
NONCE_CHARACTERS_MAX = 1_024  # of the client; real ones have some 30
# The text for the client. It reveals nothing about the user, because the gateway has not checked the proof yet.
OTHER_NONCE = "Authentication failed: the client repeats a wrong nonce, as librdkafka before 2.6.1 does; update it"

_GS2 = r"(?P<gs2>(?P<binding>n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,\0]*))?,)"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST = re.compile(
    rf"{_GS2}(?P<bare>(?:(?P<mandatory>m=[^,\0]*),)?n=(?P<name>[^,\0]+),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_TOKEN = re.compile(r",tokenauth=true(?=,|$)", re.IGNORECASE | re.ASCII)
_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]*),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE = re.compile(r"=(2C|3D)?")


class ClientFirst(NamedTuple):
    """The parts of a client's first message."""

    user: str
    nonce: str
    gs2_header: str  # the client repeats it in its final message
    bare: str  # the part that is signed
    is_token: bool = False  # the user is the id of a delegation token


def parse_client_first(message: bytes) -> ClientFirst:
    """The parts of a client's first message; `LoginFailed` if it is malformed or asks for channel binding."""
    found = _FIRST.fullmatch(_text(message))
    if found is None:
        raise LoginFailed("malformed first message")
    if found["binding"] not in ("n", "y"):
        raise LoginFailed("channel binding is not supported")
    if found["mandatory"] is not None:
        raise LoginFailed("a mandatory extension is not supported")
    if len(found["nonce"]) > NONCE_CHARACTERS_MAX:
        raise LoginFailed("the nonce is too long")
    user = decoded_name(found["name"])
    if found["authzid"] and decoded_name(found["authzid"]) != user:
        raise LoginFailed("the authorization id is another user", user)
    is_token = _TOKEN.search(found["extensions"]) is not None
    return ClientFirst(user, found["nonce"], found["gs2"], found["bare"], is_token)


def decoded_name(saslname: str) -> str:
    """The user of a `saslname`, in which =2C is a comma and =3D an equals sign; `LoginFailed` for other escapes."""

    def plain(escape: re.Match[str]) -> str:
        if escape[1] is None:
            raise LoginFailed("malformed user name")
        return "," if escape[1] == "2C" else "="

    return _ESCAPE.sub(plain, saslname)


class ScramServer:
    """One login, after the client's first message. `nonce` is the server's own part of the nonce, printable ASCII."""

    def __init__(self, first: ClientFirst, verifier: ScramVerifier, nonce: str) -> None:
        self._first = first
        self.verifier = verifier
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(verifier.salt).decode()
        self.server_first = f"r={self._nonce},s={salt},i={verifier.iterations}"

    def finish(self, message: bytes) -> bytes:
        """The server's final message to a client's final message with the right proof; else `LoginFailed`."""
        user = self._first.user
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise LoginFailed("malformed final message", user)
        if _decoded(found["binding"]) != self._first.gs2_header.encode():
            raise LoginFailed("the channel binding differs from the first message", user)
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise LoginFailed("the nonce differs from the first message", user, OTHER_NONCE)
        signed = f"{self._first.bare},{self.server_first},{found['unproven']}".encode()
        if not is_proof(self.verifier, signed, _decoded(found["proof"])):
            raise LoginFailed("wrong password or unknown user", user)
        signature = hmac.digest(self.verifier.server_key, signed, HASHES[self.verifier.mechanism])
        return b"v=" + base64.b64encode(signature)


def is_proof(verifier: ScramVerifier, signed: bytes, proof: bytes) -> bool:
    """Whether the proof was made with the password of the verifier; takes the same time for every proof."""
    name = HASHES[verifier.mechanism]
    signature = hmac.digest(verifier.stored_key, signed, name)
    if len(proof) != len(signature):
        return False
    client_key = (int.from_bytes(proof) ^ int.from_bytes(signature)).to_bytes(len(signature))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), verifier.stored_key)


def is_password(verifier: ScramVerifier, password: bytes) -> bool:
    """Whether this is the password of the verifier. It takes milliseconds of CPU time, without the interpreter lock."""
    made = verifier_of_password(verifier.mechanism, password, verifier.salt, verifier.iterations)
    return hmac.compare_digest(made.stored_key, verifier.stored_key)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise LoginFailed("the message is not UTF-8") from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LoginFailed("malformed base64") from error
