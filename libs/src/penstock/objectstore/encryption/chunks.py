"""The format of an encrypted object: chunks of 64 KiB, each sealed for its place in its object.

Each chunk has a head and a tag, so that any chunk can be read alone:

    magic "PSE" | kind, 1 byte | key id, 4 | nonce, 12 | text as long as the plain one | tag, 16

The kind is FOLLOWED or LAST. Only the last chunk may be short, and it may be empty. An object has at least one chunk.
The tag also covers the head, the number of the chunk and the name of the object. So a changed byte, a chunk in another
place, another object's bytes and a missing end are detected. docs/formats/encryption.md describes each byte.
"""

from collections.abc import Sequence
from struct import Struct

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.objectstore.encryption.keys import KEY_ID_BYTES, Keys
from penstock.objectstore.store import PART_BYTES_UNIT

MAGIC = b"PSE"
FOLLOWED, LAST = 1, 2
CHUNK_BYTES = PART_BYTES_UNIT  # so that each part of an upload begins a chunk
NONCE_BYTES = 12
TAG_BYTES = 16
_HEAD = Struct(f">3sB{KEY_ID_BYTES}s{NONCE_BYTES}s")
HEAD_BYTES = _HEAD.size
ADDED_BYTES = HEAD_BYTES + TAG_BYTES
STORED_BYTES = CHUNK_BYTES + ADDED_BYTES
_PLACE = Struct(f">3sB{KEY_ID_BYTES}sQ")


class Opened(msgspec.Struct, frozen=True):
    """Chunks in their plain form, and whether the object ends with them."""

    chunks: list[bytes]
    is_end: bool


def chunk_count(size_bytes: int) -> int:
    """The number of chunks that hold so many bytes."""
    return max(1, -(-size_bytes // CHUNK_BYTES))


def stored_size(size_bytes: int) -> int:
    """The size of the encrypted form of so many bytes."""
    return size_bytes + chunk_count(size_bytes) * ADDED_BYTES


def plain_size(stored_bytes: int) -> int:
    """The size of the plain form of an encrypted object."""
    whole, rest = divmod(stored_bytes, STORED_BYTES)
    return whole * CHUNK_BYTES + max(0, rest - ADDED_BYTES)


def is_sealed(data: Buffer) -> bool:
    """Whether these bytes begin as a chunk does."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def key_id_of(head: Buffer) -> bytes:
    """The id of the key in the head of a chunk."""
    return bytes(_HEAD.unpack_from(head)[2])


def seal(keys: Keys, name: str, first: int, body: Sequence[Buffer], nonces: bytes, *, is_end: bool) -> Sequence[Buffer]:
    """The chunks of an object from number `first` on; without `is_end` the body must be whole chunks.

    `nonces` has NONCE_BYTES for each chunk; they must be random and are used once.
    """
    data = memoryview(b"".join(body))
    count = chunk_count(len(data))
    assert is_end or len(data) == count * CHUNK_BYTES, "only the last chunk is short"
    key_id = keys.newest.key_id
    cipher = keys.cipher(key_id, name)
    sealed: list[Buffer] = []
    for index in range(count):
        nonce = nonces[index * NONCE_BYTES : (index + 1) * NONCE_BYTES]
        kind = LAST if is_end and index == count - 1 else FOLLOWED
        text = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        sealed.append(_HEAD.pack(MAGIC, kind, key_id, nonce))
        sealed.append(cipher.encrypt(nonce, text, _place(kind, key_id, first + index, name)))
    return sealed


def unseal(keys: Keys, name: str, first: int, stored: Buffer) -> Opened:
    """The plain chunks in bytes that begin with chunk `first`.

    Raises `Corrupt` if they are not as they were written, `Invalid` if the key is unknown.
    """
    view = memoryview(stored)
    ciphers: dict[bytes, AESGCM] = {}
    chunks: list[bytes] = []
    is_end = False
    for index, start in enumerate(range(0, len(view), STORED_BYTES), first):
        chunk = view[start : start + STORED_BYTES]
        if len(chunk) < ADDED_BYTES or is_end:
            raise Corrupt(f"object {name} has {len(chunk)} bytes in place of chunk {index}, or after its end")
        magic, kind, key_id, nonce = _HEAD.unpack_from(chunk)
        if magic != MAGIC or kind not in (FOLLOWED, LAST) or (kind == FOLLOWED and len(chunk) < STORED_BYTES):
            raise Corrupt(f"object {name} has a damaged or cut chunk {index}")
        if key_id not in ciphers:
            ciphers[key_id] = keys.cipher(key_id, name)
        try:
            chunks.append(ciphers[key_id].decrypt(nonce, chunk[HEAD_BYTES:], _place(kind, key_id, index, name)))
        except InvalidTag as error:
            raise Corrupt(
                f"object {name} has a damaged chunk {index}, encrypted with key {keys.name_of(key_id)}"
            ) from error
        is_end = kind == LAST
    return Opened(chunks, is_end)


def _place(kind: int, key_id: bytes, index: int, name: str) -> bytes:
    """The facts that the tag of a chunk covers in addition to its text."""
    return _PLACE.pack(MAGIC, kind, key_id, index) + name.encode()
