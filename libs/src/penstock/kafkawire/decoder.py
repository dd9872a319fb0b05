"""Builds the function that decodes one message in one version.

The function reads the bytes once. Every value of variable size has a head of fixed size: its length, the first byte of
its length, or the count of tagged fields. So one `unpack_from` reads a run of fixed-size fields and the next head.

Bounds are checked in three ways. `unpack_from` and indexing raise at the end of the bytes. A slice does not raise, so
the position may pass the end. The function compares them once, as its last step, and discards an incomplete message.
An array's count is compared with the remaining bytes before any element is made.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.kafkawire import primitives
from penstock.kafkawire.errors import DecodeError, TooManyElements
from penstock.kafkawire.schema import Array, Field, Kind, Shape, fields_of, in_version, is_nullable, size_min
from penstock.kafkawire.source import Message, Run, Source, size_of

Decode = Callable[[memoryview, int], Message]

# The bytes of one string, as in Kafka. In memory a character may take four bytes.
STRING_BYTES_MAX = 32_767

_NAMES = {
    "DecodeError": DecodeError,
    "TooManyElements": TooManyElements,
    "struct_error": struct.error,
    "unpack_from": struct.unpack_from,
    "read_uvarint": primitives.read_uvarint,
    "read_uvarint_rest": primitives.read_uvarint_rest,
    "skip_tags": primitives.skip_tags,
}


def make_decoder(message: type[msgspec.Struct], version: int, flexible: bool, elements_max: int) -> Decode:
    """A function from (view, position) to the message; it raises `DecodeError` and nothing else.

    All arrays of a message together may have at most `elements_max` elements; else it raises `TooManyElements` before
    it makes more. The reason: an element of one byte on the wire becomes 50 to 300 bytes of Python objects.
    """
    return _Decoder(version, flexible).make(message, elements_max)


class _Decoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source()
        self.run = Run()

    def make(self, message: type[msgspec.Struct], elements_max: int) -> Decode:
        source, label = self.source, f"{message.__name__} v{self.version}"
        source.add("size = len(view)")
        source.open("try:")
        source.add(f"elements_left = {elements_max}", f"tags_left = {primitives.TAGGED_FIELDS_MAX}")
        result = self.struct(message)
        self.flush()
        source.close()
        source.open("except (struct_error, IndexError, UnicodeDecodeError) as error:")
        source.add(f"raise DecodeError(f'{label}: {{error}}') from error")
        source.close()
        source.open("if position > size:")
        source.add(f"raise DecodeError(f'{label}: ends at byte {{position}} of {{size}}')")
        source.close()
        source.add(f"return {result}")
        return source.build("view, position", _NAMES)

    def flush(self) -> None:
        if not self.run.terms:
            return
        layout, names = self.run.take()
        if layout == ">B":
            self.source.add(f"{names[0]} = view[position]", "position += 1")
            return
        unpack = self.source.constant(_unpacker(layout), "unpack")
        self.source.add(f"{', '.join(names)}, = {unpack}(view, position)", f"position += {size_of(layout)}")

    def struct(self, message: type[msgspec.Struct]) -> str:
        """Write the code that reads a struct's fields.

        Returns the expression that builds the struct from them; it is valid after the run is flushed.
        """
        terms: dict[str, str] = {}
        for field in fields_of(message):
            if field.tag is None and in_version(field, self.version):
                terms[field.name] = self.field(field)
            else:
                terms[field.name] = self.default(field)
        if self.flexible:
            self.tags([f for f in fields_of(message) if f.tag is not None and in_version(f, self.version)], terms)
        return f"{self.source.constant(message, message.__name__)}({', '.join(terms.values())})"

    def default(self, field: Field) -> str:
        if isinstance(field.default, msgspec.Struct):
            return self.source.constant(field.default, "default")
        return repr(field.default)

    def field(self, field: Field) -> str:
        return self.value(field.shape, field.name, is_nullable(field, self.version))

    def value(self, shape: Shape, name: str, null_allowed: bool) -> str:
        """Write the code that reads one value. Returns the name that holds it after the run is flushed."""
        if isinstance(shape, Kind):
            target = self.source.local(name)
            if shape.format:
                self.run.add(shape.format, target)
            else:
                self.sized(shape, name, target, null_allowed)
            return target
        if isinstance(shape, Array):
            return self.array(shape, name, null_allowed)
        return self.nullable_struct(shape, name) if null_allowed else self.struct(shape)

    def head(self, name: str, format_character: str, two_bytes_likely: bool = False) -> str:
        """Write the code that reads a length or count. Returns the name that holds it, -1 for null."""
        count = self.source.local(f"{name}_length")
        self.run.add("B" if self.flexible else format_character, count)
        self.flush()
        if self.flexible:
            self.rest_of(count, two_bytes_likely)
            self.source.add(f"{count} -= 1")
        return count

    def rest_of(self, count: str, two_bytes_likely: bool = False) -> None:
        """Write the code that reads the further bytes of a compact number, after its first byte."""
        source = self.source
        source.open(f"if {count} > 127:")
        if two_bytes_likely:  # the inline case saves a call
            source.open("if view[position] < 128:")
            source.add(f"{count} += (view[position] << 7) - 128", "position += 1")
            source.close()
            source.open("else:")
        source.add(f"{count}, position = read_uvarint_rest(view, position, {count})")
        if two_bytes_likely:
            source.close()
        source.close()

    def null(self, name: str, target: str, null_allowed: bool) -> None:
        """Close the branch of a present value, and write the branch of a null value."""
        self.source.close()
        self.source.open("else:")
        if null_allowed:
            self.source.add(f"{target} = None")
        else:
            self.source.add(f"raise DecodeError('{name} is null')")
        self.source.close()

    def sized(self, kind: Kind, name: str, target: str, null_allowed: bool) -> None:
        length = self.head(name, "h" if kind.name == "string" else "i", two_bytes_likely=kind.name == "records")
        end = self.source.local("end")
        fragment = f"view[position:{end}]"
        self.source.open(f"if {length} >= 0:")
        if kind.name == "string":
            self.source.open(f"if {length} > {STRING_BYTES_MAX}:")
            self.source.add(f"raise DecodeError(f'{name}: a string of {{{length}}} bytes')")
            self.source.close()
        self.source.add(f"{end} = position + {length}")
        made = {"string": f"str({fragment}, 'utf-8')", "bytes": f"bytes({fragment})", "records": fragment}[kind.name]
        self.source.add(f"{target} = {made}", f"position = {end}")
        self.null(name, target, null_allowed)

    def array(self, shape: Array, name: str, null_allowed: bool) -> str:
        source, target, element = self.source, self.source.local(name), shape.element
        count = self.head(name, "i")
        bytes_min = size_min(element, self.version, self.flexible)
        assert bytes_min > 0, f"elements of {name} may have no bytes, so nothing limits their number"
        source.open(f"if {count} >= 0:")
        source.add(f"elements_left -= {count}")
        source.open(f"if {count} * {bytes_min} > size - position:")
        source.add(f"raise DecodeError(f'{name}: {{{count}}} elements in {{size - position}} bytes')")
        source.close()
        source.open("if elements_left < 0:")
        source.add(f"raise TooManyElements(f'{name}: {{{count}}} elements, too many for one message')")
        source.close()
        if isinstance(element, Kind) and len(element.format) == 1:
            source.add(f"{target} = list(unpack_from(f'>{{{count}}}{element.format}', view, position))")
            source.add(f"position += {count} * {bytes_min}")
        else:
            self.elements(element, name, target, count)
        self.null(name, target, null_allowed)
        return target

    def elements(self, element: Shape, name: str, target: str, count: str) -> None:
        append = self.source.local("append")
        self.source.add(f"{target} = []", f"{append} = {target}.append")
        self.source.open(f"for _ in range({count}):")
        term = self.value(element, name, null_allowed=False)
        self.flush()
        self.source.add(f"{append}({term})")
        self.source.close()

    def nullable_struct(self, shape: type[msgspec.Struct], name: str) -> str:
        target, presence = self.source.local(name), self.source.local("presence")
        self.run.add("b", presence)
        self.flush()
        self.source.open(f"if {presence} >= 0:")
        term = self.struct(shape)
        self.flush()
        self.source.add(f"{target} = {term}")
        self.null(name, target, null_allowed=True)
        return target

    def tags(self, fields: list[Field], terms: dict[str, str]) -> None:
        """Write the code that reads a section of tagged fields (KIP-482); it skips tags that are not in `fields`."""
        source, count = self.source, self.source.local("tags")
        self.run.add("B", count)
        self.flush()
        for field in fields:
            target = source.local(field.name)
            source.add(f"{target} = {terms[field.name]}")
            terms[field.name] = target
        source.open(f"if {count}:")
        if fields:
            self.known_tags(fields, terms, count)
        else:
            source.add(f"position, tags_left = skip_tags(view, position, {count}, tags_left)")
        source.close()

    def known_tags(self, fields: list[Field], terms: dict[str, str], count: str) -> None:
        source = self.source
        number, end = source.local("tag"), source.local("tag_end")
        self.rest_of(count)
        source.add(f"tags_left -= {count}")
        source.open("if tags_left < 0:")
        source.add(f"raise DecodeError('more than {primitives.TAGGED_FIELDS_MAX} tagged fields')")
        source.close()
        source.open(f"for _ in range({count}):")
        source.add(f"{number}, position = read_uvarint(view, position)")
        source.add(f"{end}, position = read_uvarint(view, position)", f"{end} += position")
        for field in fields:
            source.open(f"if {number} == {field.tag}:")
            term = self.field(field)
            self.flush()
            source.add(f"{terms[field.name]} = {term}")
            source.open(f"if position > {end}:")
            source.add(f"raise DecodeError(f'{field.name} ends at byte {{position}}, its tag at {{{end}}}')")
            source.close()
            source.close()
        source.add(f"position = {end}")
        source.close()


def _unpacker(layout: str) -> Callable[..., Any]:
    return struct.Struct(layout).unpack_from
