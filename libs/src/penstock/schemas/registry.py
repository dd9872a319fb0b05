"""A client of a schema registry: the REST API of Confluent, which Karapace, Apicurio and Redpanda also have.

It reads only, from one address, and follows no redirect.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.clock import Clock
from penstock.schemas.limits import SchemaLimits

Answer = TypeVar("Answer")
AVRO, JSON_SCHEMA, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_UNKNOWN_SCHEMA = 40403  # the error code of an id without a schema
_PORTS = {"http": 80, "https": 443}
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
_CHUNK_BYTES = 65_536


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a registry and the login there; "" is not set."""

    scheme: str
    host: str
    port: int
    path: str = ""
    username: str = ""
    password: str = ""
    ca_file: str = ""

    def __str__(self) -> str:
        """The address without its login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    __repr__ = __str__


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses by its name."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema as the registry has it; a Protobuf one is a serialized descriptor in base64."""

    schema: str
    type: str = msgspec.field(default=AVRO, name="schemaType")
    references: list[Reference] = []


class _Version(msgspec.Struct, frozen=True):
    subject: str
    version: int


class UnknownSchema(Invalid):
    """The registry answers that it has no schema of this id."""


def parse_address(url: str, *, password_file: str = "", ca_file: str = "") -> Address:
    """The address of a URL such as https://USER:PASSWORD@HOST/PATH; `Invalid` if it is none."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise Invalid("the address of the schema registry is no URL") from error
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise Invalid(
            "the address of the schema registry is http://HOST:PORT or https://HOST:PORT, perhaps with a path"
        )
    password = _first_line(password_file) if password_file else unquote(parts.password or "")
    username = unquote(parts.username or "")
    if password and not username:
        raise Invalid("the address of the schema registry has a password, but no user: https://USER@HOST")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        path=quote(unquote(parts.path.rstrip("/"))),
        username=username,
        password=password,
        ca_file=ca_file,
    )


def without_password(url: str) -> str:
    """The URL as a page may show it."""
    parts = urlsplit(url)
    login, separator, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login.partition(':')[0]}{separator}{place}").geturl()


def _first_line(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise Invalid(f"cannot read the password of the schema registry in {path}: {error.strerror}") from None
    except UnicodeDecodeError:  # without its text, which has a part of the password
        raise Invalid(f"cannot read the password of the schema registry in {path}: it is not text in UTF-8") from None


class Registry:
    """Reads schemas. Several threads may use it."""

    def __init__(self, address: Address, clock: Clock, limits: SchemaLimits) -> None:
        """`Invalid` if the file of certificates cannot be read."""
        self.address = address
        self._clock = clock
        self._limits = limits
        self._tls = _tls_context(address) if address.scheme == "https" else None
        login = base64.b64encode(f"{address.username}:{address.password}".encode()).decode()
        self._headers = {"Accept": _ACCEPTED} | ({"Authorization": f"Basic {login}"} if address.username else {})

    def schema(self, schema_id: int) -> Schema:
        """The schema of an id.

        `UnknownSchema` if there is none, `Invalid` for an answer of no use, `Unavailable` if no answer comes.
        """
        path = f"/schemas/ids/{schema_id}"
        found = self._get(path, Schema)
        if found.type != PROTOBUF:
            return found
        try:
            return self._get(f"{path}?format=serialized", Schema)
        except Invalid:
            # Karapace cannot serialize a schema with references by its id, but by its version it can (issue 1263).
            for each in self._get(f"{path}/versions", list[_Version])[:1]:
                serialized = self._get(_version_path(each.subject, each.version, PROTOBUF), Schema)
                return msgspec.structs.replace(serialized, references=found.references)
            raise

    def referenced(self, schema: Schema) -> Iterator[tuple[str, Schema]]:
        """The names and schemas that a schema needs, each after those that it needs itself, and once."""
        yield from self._referenced(schema, schema.type, set())

    def _referenced(self, schema: Schema, kind: str, seen: set[tuple[str, int]]) -> Iterator[tuple[str, Schema]]:
        for each in schema.references:
            if (each.subject, each.version) in seen:
                continue
            seen.add((each.subject, each.version))
            if len(seen) > self._limits.references_max:
                raise Invalid(f"it has more than {self._limits.references_max} references")
            found = self._get(_version_path(each.subject, each.version, kind), Schema)
            yield from self._referenced(found, kind, seen)
            yield each.name, found

    def _get(self, path: str, kind: type[Answer]) -> Answer:
        status, body = self._answer(f"{self.address.path}{path}")
        if status == 200:
            try:
                return msgspec.json.decode(body, type=kind)
            except msgspec.MsgspecError as error:
                raise Invalid(f"the answer of {self.address} is not that of a schema registry: {error}") from error
        if status in (401, 403):
            raise Unavailable(f"{self.address} refuses the login: HTTP {status}")
        code, message = _error_of(body)
        if status == 404 and code == _UNKNOWN_SCHEMA:
            raise UnknownSchema("the registry has no schema of this id")
        raise Invalid(f"{self.address} answers HTTP {status}{f': {message}' if message else ''}")

    def _answer(self, path: str) -> tuple[int, bytes]:
        """The status and the body of an answer within the time-out and the size."""
        address, timeout_s = self.address, self._limits.timeout_s
        deadline_s = self._clock.monotonic_s() + timeout_s
        connection = (
            http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
            if self._tls is None
            else http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=self._tls)
        )
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            body = bytearray()
            while chunk := answer.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > self._limits.answer_bytes_max:
                    raise Invalid(f"the answer of {address} has more than {self._limits.answer_bytes_max} bytes")
                if self._clock.monotonic_s() > deadline_s:
                    raise TimeoutError("timed out")
            return answer.status, bytes(body)
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # no name of a host has an empty part
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unavailable(f"{address} does not answer: {reason}") from error
        finally:
            connection.close()


def _version_path(subject: str, version: int, kind: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}{'?format=serialized' if kind == PROTOBUF else ''}"


def _error_of(body: bytes) -> tuple[int, str]:
    """The code and the message of an error, 0 and "" where the body has none."""
    try:
        found = json.loads(body)
        return int(found["error_code"]), str(found.get("message", ""))[:200]
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 0, ""


def _tls_context(address: Address) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.ca_file or None)
    except OSError as error:
        raise Invalid(f"cannot read the certificates in {address.ca_file}: {error.strerror or error}") from error
