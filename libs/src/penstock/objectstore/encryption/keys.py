"""Reads the keys of encrypted objects from a file, or from the output of a command."""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import re
import shlex
import stat
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from penstock.contracts.errors import Invalid

COMMAND = "command:"
COMMAND_S_MAX = 60.0  # a KMS answers in milliseconds, its program may take seconds to start
KEY_BYTES = 32
KEY_ID_BYTES = 4
KEYS_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STRANGERS = stat.S_IWGRP | stat.S_IRWXO  # a group may read, because secrets in Kubernetes are mounted so
_ID_LABEL = b"penstock key id v1\0"
_OBJECT_LABEL = b"penstock object key v1\0"


class Key(msgspec.Struct, frozen=True):
    """One key; `key_id` is made from its secret, so two different keys never have the same id."""

    name: str
    key_id: bytes
    secret: bytes

    def __repr__(self) -> str:
        """Only the name: the secret must not be shown."""
        return f"Key({self.name})"


class Keys:
    """All known keys. New objects get the first one."""

    def __init__(self, keys: list[Key]) -> None:
        self.newest = keys[0]
        self._by_id = {key.key_id: key for key in keys}

    def name_of(self, key_id: bytes) -> str:
        """The name of a key in the file, or its id in hex if the key is unknown."""
        known = self._by_id.get(key_id)
        return known.name if known else f"{key_id.hex()} (unknown)"

    def cipher(self, key_id: bytes, name: str) -> AESGCM:
        """The cipher of one object, which has its own key; `Invalid` if the key with this id is unknown.

        That is not `Corrupt`: the object may be sound, so no caller may replace or delete it.
        """
        known = self._by_id.get(key_id)
        if known is None:
            raise Invalid(f"object {name} is encrypted with key {key_id.hex()}, which is not in the key file")
        label = _OBJECT_LABEL + name.encode()
        return AESGCM(HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=label).derive(known.secret))


async def read_keys(source: str) -> Keys:
    """The keys in the file at an absolute path, or in the output of `command:PROGRAM ARGUMENTS`.

    `Invalid` with one sentence if there are none; its text never has a part of the file or the output.
    """
    if source.startswith(COMMAND):
        return parse_keys(await _output(source.removeprefix(COMMAND)), "the output of the key command")
    path = Path(source)
    if not path.is_absolute():
        raise Invalid(f"encryption_keys must be an absolute path, or {COMMAND}PROGRAM ARGUMENTS: {source!r}")
    return parse_keys(_text(path), f"the key file {path}")


def _text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot read the key file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"the key file {path} is not text") from error
    if mode & _STRANGERS:
        raise Invalid(f"other users have access to the key file {path}: set its mode to 0600")
    return text


def parse_keys(text: str, where: str) -> Keys:
    """The keys in lines of a name and 32 bytes in base64, the newest first; `#` begins a comment."""
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]):
            raise Invalid(f"line {number} of {where} is not a name and a key in base64")
        secret = _secret(words[1])
        if len(secret) != KEY_BYTES:
            raise Invalid(f"line {number} of {where} needs a key of {KEY_BYTES} bytes in base64")
        keys.append(Key(words[0], hashlib.sha256(_ID_LABEL + secret).digest()[:KEY_ID_BYTES], secret))
        if words[0] in [key.name for key in keys[:-1]] or keys[-1].key_id in [key.key_id for key in keys[:-1]]:
            raise Invalid(f"line {number} of {where} has the name or the key of an earlier line")
    if not 1 <= len(keys) <= KEYS_MAX:
        raise Invalid(f"{where} has {len(keys)} keys, allowed are 1 to {KEYS_MAX}")
    return Keys(keys)


def _secret(text: str) -> bytes:
    with contextlib.suppress(binascii.Error, ValueError):
        return base64.b64decode(text, validate=True)
    return b""


async def _output(command: str) -> str:
    """The output of a command. No shell runs it; its errors go to the log of the process."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"the key command has an open quote: {error}") from error
    if not words:
        raise Invalid(f"encryption_keys={COMMAND} names no program")
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=PIPE)
    except OSError as error:
        raise Invalid(f"cannot run the key command {words[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(COMMAND_S_MAX):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise Invalid(f"the key command {words[0]} did not end within {COMMAND_S_MAX:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Invalid(f"the key command {words[0]} failed with status {process.returncode}")
    return output.decode(errors="replace")
