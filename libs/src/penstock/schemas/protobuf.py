"""Records with a Protobuf schema: the registry has the descriptors, so no compiler is needed."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from penstock.contracts.errors import Invalid
from penstock.schemas.frames import split_message_path
from penstock.schemas.json_values import json_value

_FOLDER = "google/protobuf/"
_WELL_KNOWN = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
_ERRORS = (json_format.Error, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


class ProtobufReader:
    """Reads the payloads of one schema, each with the path to its message."""

    def __init__(self, schema: str, referenced: Iterable[tuple[str, str]]) -> None:
        """`Invalid` if the descriptors cannot be read, or refer to missing ones."""
        self._pool = descriptor_pool.DescriptorPool()
        self._added: set[str] = set()
        for name, each in referenced:
            self._add(name, _parsed(each))
        self._root = _parsed(schema)
        self._add("", self._root)
        self._kinds: dict[tuple[int, ...], Any] = {}

    def _add(self, name: str, file: FileDescriptorProto) -> None:
        """Add a file under the name by which others import it."""
        added = FileDescriptorProto()
        added.CopyFrom(file)
        added.name = name or "the schema"
        for each in file.dependency:
            self._add_well_known(each)
        # Imports of options only (`confluent/meta.proto`) are often not in the registry. Without them the types of
        # the file are the same; if a type is missing, adding the file fails.
        _keep_imports(added, self._added)
        try:
            self._pool.Add(added)
        except TypeError as error:
            raise Invalid(f"its Protobuf schema cannot be read: {error}") from error
        self._added.add(added.name)

    def _add_well_known(self, path: str) -> None:
        name = path.removeprefix(_FOLDER).removesuffix(".proto")
        if path in self._added or not path.startswith(_FOLDER) or name not in _WELL_KNOWN:
            return
        found = FileDescriptorProto.FromString(import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.serialized_pb)
        for each in found.dependency:
            self._add_well_known(each)
        self._pool.Add(found)
        self._added.add(path)

    def read(self, payload: bytes) -> tuple[str, Any]:
        """The name of the message, and its fields by their names in the schema; `Invalid` if it does not fit."""
        path, data = split_message_path(payload)
        kind = self._kinds.get(path)
        if kind is None:
            kind = self._kinds[path] = self._kind(path)
        try:
            fields = json_format.MessageToDict(
                kind.FromString(data),
                preserving_proto_field_name=True,
                unquote_int64_if_possible=True,
                descriptor_pool=self._pool,
            )
            return kind.DESCRIPTOR.full_name, json_value(fields)
        except (DecodeError, *_ERRORS) as error:
            raise Invalid(f"the payload does not fit its Protobuf message: {error}") from error

    def _kind(self, path: tuple[int, ...]) -> Any:
        """The class of the message at a path."""
        names = [self._root.package] if self._root.package else []
        siblings: Sequence[DescriptorProto] = self._root.message_type
        for index in path:
            found = _message_at(index, siblings)
            if found is None:
                raise Invalid(f"its schema has no message at the path {list(path)}")
            names.append(found.name)
            siblings = found.nested_type
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(".".join(names)))


def _message_at(index: int, siblings: Sequence[DescriptorProto]) -> DescriptorProto | None:
    """The message of an index.

    Serializers in Java do not count the types that Protobuf makes for maps, but those in Python do. The difference is
    seen only where the index is too large for the first count.
    """
    counted = [each for each in siblings if not each.options.map_entry]
    if index < len(counted):
        return counted[index]
    return siblings[index] if index < len(siblings) else None


def _keep_imports(file: FileDescriptorProto, names: set[str]) -> None:
    kept = [each for each in file.dependency if each in names]
    public = [kept.index(file.dependency[each]) for each in file.public_dependency if file.dependency[each] in names]
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(kept)
    file.public_dependency.extend(public)


def _parsed(schema: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise Invalid("the registry does not serialize Protobuf schemas (?format=serialized)") from error
