"""The secret keys of delegation tokens, and the passwords that they make.

The password of a token is the HMAC of its id, as in Kafka. So no process has to keep it. All gateways have the same
keys. The first key makes new tokens; tokens of the other keys remain valid until they expire.
"""

import base64
import hmac
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.contracts.errors import Invalid

HASH = "sha512"  # as in Kafka
KEY_ID_BYTES = 6
SALT_BYTES = 24
SECRET_CHARACTERS_MIN = 32  # a holder of a token could try all keys of a short secret
KEYS_MAX = 10
_KEY_ID, _SALT = b"penstock: id of the key", b"penstock: salts of tokens"


class TokenKey(msgspec.Struct, frozen=True):
    """One secret key. Its id is no secret."""

    key_id: str
    secret: bytes
    salt_secret: bytes

    def __repr__(self) -> str:
        """Only the id: this text can reach a log."""
        return f"TokenKey({self.key_id})"


class TokenKeys:
    """The keys, by their ids; without any, delegation tokens are off."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        keys = [_key(secret) for secret in secrets]
        self._keys = {key.key_id: key for key in keys}
        self.newest_id = keys[0].key_id if keys else ""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def hmac(self, token_id: str, key_id: str) -> bytes | None:
        """The password of a token in its binary form, None if its key is not here."""
        key = self._keys.get(key_id)
        return None if key is None else hmac.digest(key.secret, token_id.encode(), HASH)

    def salt(self, token_id: str, key_id: str) -> bytes:
        """The salt of a token's SCRAM verifiers, the same at all gateways."""
        return hmac.digest(self._keys[key_id].salt_secret, token_id.encode(), HASH)[:SALT_BYTES]


def password_of(token_hmac: bytes) -> bytes:
    """The password of a login with a token: its HMAC in base64."""
    return base64.b64encode(token_hmac)


def read_token_keys(secret: str, path: str) -> TokenKeys:
    """The keys of the settings: one secret, or a file with one in each line, the newest first.

    `Invalid` without any part of a secret in its text.
    """
    if secret and path:
        raise Invalid("delegation_token_secret_key and delegation_token_secret_key_file exclude each other")
    secrets = [secret] if secret else []
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"delegation_token_secret_key_file cannot be read: {type(error).__name__}: {path}") from None
        secrets = [line.strip() for line in text.splitlines() if line.strip()]
        if not 0 < len(secrets) <= KEYS_MAX:
            raise Invalid(f"delegation_token_secret_key_file must have 1 to {KEYS_MAX} lines with a key: {path}")
    if any(len(each) < SECRET_CHARACTERS_MIN for each in secrets):
        raise Invalid(f"a secret key of delegation tokens must have at least {SECRET_CHARACTERS_MIN} characters")
    return TokenKeys([each.encode() for each in secrets])


def _key(secret: bytes) -> TokenKey:
    key_id = hmac.digest(secret, _KEY_ID, HASH)[:KEY_ID_BYTES].hex()
    return TokenKey(key_id, secret, hmac.digest(secret, _SALT, HASH))
