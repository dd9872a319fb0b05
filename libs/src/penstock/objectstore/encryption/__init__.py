"""Encryption of objects before they leave the process, with keys that the store never sees; see ADR 0038.

May import the protocol of stores. Start with `chunks` (the format), then `store`. `keys` reads the key file, and
`opening` reads the options of an address.
"""

from penstock.objectstore.encryption.keys import Key, Keys, parse_keys, read_keys
from penstock.objectstore.encryption.opening import OPTIONS, Encryption, check_marker, read_encryption
from penstock.objectstore.encryption.store import EncryptedStore, Plain
from penstock.objectstore.encryption.usage import KeyUse, keys_in_use

__all__ = [
    "EncryptedStore",
    "Encryption",
    "Key",
    "KeyUse",
    "Keys",
    "OPTIONS",
    "Plain",
    "check_marker",
    "keys_in_use",
    "parse_keys",
    "read_encryption",
    "read_keys",
]
