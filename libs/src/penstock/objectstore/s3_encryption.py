"""Encryption of objects by the S3 server: with its own keys, with a key of a KMS, or with a key that we send."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.contracts.errors import Invalid

OPTIONS = ("sse", "sse_kms_key", "sse_key_file")
SERVER_KEYS, KMS_KEYS, OUR_KEYS = "s3", "kms", "customer"
KINDS = (SERVER_KEYS, KMS_KEYS, OUR_KEYS)
KEY_BYTES = 32
ALGORITHM = "AES256"
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


class Encryption(msgspec.Struct, frozen=True):
    """Parameters for requests; they may have a key, so they must not be shown."""

    make: Mapping[str, Any] = {}  # for puts, and for the beginning of an upload
    read: Mapping[str, Any] = {}  # for gets, and for the rest of an upload


def encryption_of(options: Mapping[str, str]) -> Encryption:
    """The parameters for the options of a store's address; `Invalid` with one sentence if they do not fit.

    - sse=s3: keys of the server (SSE-S3)
    - sse=kms: a key of the server's KMS (SSE-KMS), by default the one of the account; `sse_kms_key` names another
    - sse=customer: the 32 bytes in the file `sse_key_file` (SSE-C); without them no object can be read again
    """
    kind = options.get("sse", "")
    if kind and kind not in KINDS:
        raise Invalid(f"s3 option sse is {', '.join(KINDS)}: {kind!r}")
    _check_belongs("sse_kms_key", KMS_KEYS, options)
    _check_belongs("sse_key_file", OUR_KEYS, options)
    if kind == SERVER_KEYS:
        return Encryption({"ServerSideEncryption": ALGORITHM})
    if kind == KMS_KEYS:
        key = options.get("sse_kms_key")
        return Encryption({"ServerSideEncryption": "aws:kms"} | ({"SSEKMSKeyId": key} if key else {}))
    if kind == OUR_KEYS:
        ours = {"SSECustomerAlgorithm": ALGORITHM, "SSECustomerKey": _key(options)}
        return Encryption(ours, ours)
    return Encryption()


def _check_belongs(option: str, kind: str, options: Mapping[str, str]) -> None:
    if option in options and options.get("sse") != kind:
        raise Invalid(f"s3 option {option} goes with sse={kind}")


def _key(options: Mapping[str, str]) -> bytes:
    """The key in the file. Each request has it, so it must not cross a network in plain text."""
    endpoint = urlsplit(options.get("endpoint", "https://"))
    if endpoint.scheme != "https" and endpoint.hostname not in LOOPBACK_HOSTS:
        raise Invalid("sse=customer sends the key with each request, so the endpoint must be https://")
    path = options.get("sse_key_file", "")
    if not path:
        raise Invalid(f"sse=customer needs sse_key_file, a file with {KEY_BYTES} random bytes")
    try:
        key = Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read the key file {path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise Invalid(f"the key file {path} has {len(key)} bytes, not {KEY_BYTES}")
    return key
