"""The table of the Kafka APIs that Penstock serves, and the codecs of their messages.

Each module of this package describes one API in its `API`; the table collects them. Start with `metadata`.
"""

import functools
import importlib
import pkgutil

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.decoder import Decode, make_decoder
from penstock.kafkawire.encoder import Encode, make_encoder
from penstock.kafkawire.errors import UnsupportedVersion
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.source import Message

# The largest legitimate requests name about 100,000 partitions. The limit is a small multiple of that.
REQUEST_ELEMENTS_MAX = 250_000
# Responses come from Penstock itself. Metadata has four or more elements per partition.
RESPONSE_ELEMENTS_MAX = 10_000_000


def _described() -> dict[int, Api]:
    """The APIs of all modules of this package, by their keys."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    apis: list[Api] = [importlib.import_module(f"{__name__}.{name}").API for name in names]
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


API_TABLE: dict[int, Api] = _described()
SHARE_GROUP_APIS = frozenset(key for key, api in API_TABLE.items() if api.share_groups_only)


def decode_request(
    api_key: int, version: int, body: Buffer, position: int = 0, elements_max: int = REQUEST_ELEMENTS_MAX
) -> Message:
    """The request from `position` of `body` on; its record bytes are views of `body`. Raises only `DecodeError`.

    A decoder is built for each `elements_max`, so there should be few different ones.
    """
    return _request_decoder(api_key, version, elements_max)(memoryview(body), position)


def decode_response(api_key: int, version: int, body: Buffer) -> Message:
    """The response in `body`; its record bytes are views of `body`. Raises only `DecodeError`."""
    return _response_decoder(api_key, version)(memoryview(body), 0)


def encode_request(api_key: int, version: int, request: msgspec.Struct) -> bytes:
    """The body of a request, without the fields that this version lacks; `EncodeError` for a value out of range."""
    return b"".join(_request_encoder(api_key, version)(request))


def encode_response(api_key: int, version: int, response: msgspec.Struct) -> list[Buffer]:
    """The body of a response as buffers, to be sent in this order; record bytes are not copied."""
    return _response_encoder(api_key, version)(response)


def is_flexible(api: Api, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return version >= api.flexible_since


def serves(api_key: int, version: int) -> bool:
    """Whether Penstock serves this API in this version."""
    api = API_TABLE.get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


# A codec is built on first use, in about a millisecond, and kept: there is one per served version.


@functools.cache
def _request_decoder(api_key: int, version: int, elements_max: int) -> Decode:
    api = _served(api_key, version)
    return make_decoder(api.request, version, is_flexible(api, version), elements_max)


@functools.cache
def _response_decoder(api_key: int, version: int) -> Decode:
    api = _served(api_key, version)
    return make_decoder(api.response, version, is_flexible(api, version), RESPONSE_ELEMENTS_MAX)


@functools.cache
def _request_encoder(api_key: int, version: int) -> Encode:
    api = _served(api_key, version)
    return make_encoder(api.request, version, is_flexible(api, version))


@functools.cache
def _response_encoder(api_key: int, version: int) -> Encode:
    api = _served(api_key, version)
    return make_encoder(api.response, version, is_flexible(api, version))


def _served(api_key: int, version: int) -> Api:
    if not serves(api_key, version):
        raise UnsupportedVersion(f"api {api_key} version {version} is not served")
    return API_TABLE[api_key]
