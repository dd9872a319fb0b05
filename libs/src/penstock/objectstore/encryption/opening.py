"""Finds the encryption for the options of a store's address, and compares it with the marker in the store.

The marker is an encrypted object. Without keys, a store with a marker cannot be opened. So no service writes plain
objects by mistake, and a wrong key file is found at the start.
"""

import contextlib
from collections.abc import Mapping

import msgspec

from penstock.contracts.errors import Conflict, Invalid
from penstock.objectstore.encryption.keys import Keys, read_keys
from penstock.objectstore.encryption.store import MARKER, EncryptedStore, Plain
from penstock.objectstore.store import ObjectStore
from penstock.runtime.clock import Entropy

OPTIONS = ("encryption_keys", "encryption_plain")
_MARKER_TEXT = b"The objects of Penstock in this store are encrypted.\n"


class Encryption(msgspec.Struct, frozen=True):
    """The keys, and the use of plain objects; without keys nothing is encrypted."""

    entropy: Entropy
    keys: Keys | None = None
    plain: Plain = Plain.REJECT

    def around(self, inner: ObjectStore) -> ObjectStore:
        """The store whose objects are encrypted in `inner`."""
        return inner if self.keys is None else EncryptedStore(inner, self.keys, self.entropy, plain=self.plain)


async def read_encryption(options: Mapping[str, str], entropy: Entropy) -> Encryption:
    """The encryption that the options of an address select; `Invalid` with one sentence if they do not fit."""
    source = options.get("encryption_keys", "")
    if not source:
        if options:
            raise Invalid(f"the store option {min(options)} needs encryption_keys=/path")
        return Encryption(entropy)
    try:
        plain = Plain(options.get("encryption_plain", Plain.REJECT.value))
    except ValueError as error:
        kinds = ", ".join(each.value for each in Plain)
        raise Invalid(f"encryption_plain is {kinds}: {options['encryption_plain']!r}") from error
    return Encryption(entropy, await read_keys(source), plain)


async def check_marker(inner: ObjectStore, encryption: Encryption) -> None:
    """`Invalid` if the marker in `inner` needs other keys; writes it if it is absent or has an older key."""
    etag = next((info.etag for info in await inner.list(MARKER, limit=1) if info.key == MARKER), None)
    if encryption.keys is None:
        if etag is not None:
            raise Invalid("the objects of this store are encrypted: add encryption_keys to its address")
        return
    store = EncryptedStore(inner, encryption.keys, encryption.entropy)
    if etag is not None:
        await store.get(MARKER)
        if await store.key_id(MARKER) == encryption.keys.newest.key_id:
            return
    if encryption.plain is not Plain.WRITE:
        # Another process may be faster. A process that may only read leaves the marker to the others.
        with contextlib.suppress(Conflict, Invalid):
            await store.put(MARKER, [_MARKER_TEXT], if_match=etag)
