"""The decoder of keys and values: it keeps a reader for each schema that it has seen lately."""

import threading
from collections import OrderedDict
from typing import Any, Protocol

import msgspec

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.runtime.clock import Clock, SystemClock
from penstock.schemas.frames import parse_frame
from penstock.schemas.json_schema import JsonReader
from penstock.schemas.limits import DEFAULT_LIMITS, SchemaLimits
from penstock.schemas.registry import AVRO, JSON_SCHEMA, PROTOBUF, Address, Registry, Schema, UnknownSchema

EXTRA = "penstock[schemas]"


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A key or value as JSON, with its schema."""

    value: Any
    schema_id: int
    type: str  # AVRO, JSON or PROTOBUF
    name: str  # of the record, the message or the title


class Undecoded(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a key or value with a frame has no other form than its bytes."""

    schema_id: int
    reason: str
    is_unknown: bool = False  # the registry has no such schema, so perhaps it is no frame


class SchemaReader(Protocol):
    """Reads the payloads of one schema."""

    def read(self, payload: bytes) -> tuple[str, Any]:
        """The name of the type and the value; `Invalid` if the payload does not fit."""


class _Known(msgspec.Struct, frozen=True):
    type: str
    reader: SchemaReader


class _Failure(msgspec.Struct, frozen=True):
    reason: str
    is_unknown: bool
    until_s: float


class Decoder:
    """Decodes keys and values by the schemas of one registry. Several threads may use it."""

    def __init__(self, address: Address, clock: Clock | None = None, limits: SchemaLimits = DEFAULT_LIMITS) -> None:
        """`Invalid` if the certificates of the address cannot be read."""
        self._clock = clock or SystemClock()
        self._limits = limits
        self._registry = Registry(address, self._clock, limits)
        self._lock = threading.Lock()  # of the three fields below
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._failed: OrderedDict[int, _Failure] = OrderedDict()
        self._outage: _Failure | None = None
        self._loading = threading.Lock()  # the registry is asked by one thread at a time

    def decode(self, data: bytes | None) -> Decoded | Undecoded | None:
        """The value in the bytes, or the reason why there is none; None if they have no frame."""
        frame = parse_frame(data)
        if frame is None:
            return None
        found = self._found(frame.schema_id)
        if isinstance(found, _Failure):
            return Undecoded(schema_id=frame.schema_id, reason=found.reason, is_unknown=found.is_unknown)
        try:
            if len(frame.payload) > self._limits.payload_bytes_max:
                raise Invalid(f"{len(frame.payload)} bytes are too many: at most {self._limits.payload_bytes_max}")
            name, value = found.reader.read(frame.payload)
        except Invalid as error:
            return Undecoded(schema_id=frame.schema_id, reason=str(error))
        return Decoded(value=value, schema_id=frame.schema_id, type=found.type, name=name)

    def _found(self, schema_id: int) -> _Known | _Failure:
        found = self._kept(schema_id)
        if found is None:
            if not self._loading.acquire(timeout=self._limits.timeout_s):
                return _Failure("the registry is slow for other records", False, 0.0)
            try:
                # Another thread may have loaded it in the meantime.
                found = self._kept(schema_id) or self._load(schema_id)
            finally:
                self._loading.release()
        return found

    def _kept(self, schema_id: int) -> _Known | _Failure | None:
        now_s = self._clock.monotonic_s()
        with self._lock:
            if known := self._known.get(schema_id):
                self._known.move_to_end(schema_id)
                return known
            failures = (self._failed.get(schema_id), self._outage)
            return next((each for each in failures if each is not None and now_s < each.until_s), None)

    def _load(self, schema_id: int) -> _Known | _Failure:
        try:
            schema = self._registry.schema(schema_id)
            known = _Known(schema.type, self._reader(schema))
        except PenstockError as error:
            return self._keep_failure(schema_id, error)
        with self._lock:
            self._outage = None
            self._failed.pop(schema_id, None)
            self._known[schema_id] = known
            if len(self._known) > self._limits.schemas_max:
                self._known.popitem(last=False)
        return known

    def _keep_failure(self, schema_id: int, error: PenstockError) -> _Failure:
        is_outage = isinstance(error, Unavailable)
        lasts_s = self._limits.outage_s if is_outage else self._limits.failure_s
        until_s = self._clock.monotonic_s() + lasts_s
        failure = _Failure(str(error), isinstance(error, UnknownSchema), until_s)
        with self._lock:
            if is_outage:
                self._outage = failure
                return failure
            self._failed[schema_id] = failure
            self._failed.move_to_end(schema_id)
            if len(self._failed) > self._limits.failures_max:
                self._failed.popitem(last=False)
        return failure

    def _reader(self, schema: Schema) -> SchemaReader:
        """The reader of a schema; `Invalid` names the extra if its library is missing."""
        if schema.type == JSON_SCHEMA:
            return JsonReader(schema.schema)
        if schema.type not in (AVRO, PROTOBUF):
            raise Invalid(f"schemas of the type {schema.type!r} are not known here")
        referenced = list(self._registry.referenced(schema))
        try:
            if schema.type == AVRO:
                from penstock.schemas.avro import AvroReader

                return AvroReader(schema.schema, [each.schema for _, each in referenced], self._limits)
            from penstock.schemas.protobuf import ProtobufReader

            return ProtobufReader(schema.schema, [(name, each.schema) for name, each in referenced])
        except ImportError as error:
            raise Invalid(f"the package {error.name} is missing here: pip install '{EXTRA}'") from error
