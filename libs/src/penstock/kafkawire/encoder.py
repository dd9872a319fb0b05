"""Builds the function that encodes one message in one version.

The function visits each field once and collects small fragments. One `pack` writes a run of fixed-size fields and the
head of the next value: its length, or the count of an array. Record bytes are not copied: they become buffers of their
own between the joined fragments.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.kafkawire import primitives
from penstock.kafkawire.errors import EncodeError
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.schema import Array, Field, Kind, Shape, fields_of, has_records, in_version, is_nullable
from penstock.kafkawire.source import Message, Run, Source

Encode = Callable[[Message], list[Buffer]]

_NO_TAG_COUNT = "0"
_NO_TAGS = repr(b"\0")
_SHORT_ARRAY = 9  # for arrays of numbers below this length there is a table of packers

_NAMES = {
    "EncodeError": EncodeError,
    "struct_error": struct.error,
    "pack": struct.pack,
    "join": b"".join,
    "uvarint": primitives.uvarint,
    "tag_section": primitives.tag_section,
}


def make_encoder(message: type[msgspec.Struct], version: int, flexible: bool) -> Encode:
    """A function from the message to a list of buffers; `EncodeError` for a value that has no encoding."""
    return _Encoder(version, flexible).make(message)


class _Encoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source()
        self.run = Run()

    def make(self, message: type[msgspec.Struct]) -> Encode:
        source, records = self.source, has_records(message)
        source.add("buffers = []", "fragments = []")
        source.open("try:")
        source.add("append = fragments.append")
        self.struct(message, "message")
        self.flush()
        source.close()
        source.open("except (struct_error, TypeError, AttributeError, UnicodeEncodeError) as error:")
        source.add(f"raise EncodeError(f'{message.__name__} v{self.version}: {{error}}') from error")
        source.close()
        if records:
            source.open("if fragments:")
        source.add("buffers.append(join(fragments))")
        if records:
            source.close()
        source.add("return buffers")
        return source.build("message", _NAMES)

    def make_fragment(self, field: Field) -> Callable[[Any], bytes]:
        """A function from the value of a tagged field to its bytes."""
        self.source.add("fragments = []", "append = fragments.append")
        self.value(field.shape, field.name, "value", is_nullable(field, self.version))
        self.flush()
        self.source.add("return join(fragments)")
        return self.source.build("value", _NAMES)

    def flush(self) -> None:
        if self.run.terms:
            layout, terms = self.run.take()
            self.source.add(f"append({_NO_TAGS if terms == [_NO_TAG_COUNT] else self.packed(layout, terms)})")

    def packed(self, layout: str, terms: list[str]) -> str:
        return f"{self.source.constant(_packer(layout), 'pack')}({', '.join(terms)})"

    def struct(self, message: type[msgspec.Struct], term: str) -> None:
        """Write the code that encodes the struct that `term` holds; the last run stays open."""
        present = [field for field in fields_of(message) if in_version(field, self.version)]
        for field in present:
            if field.tag is None:
                self.value(field.shape, field.name, f"{term}.{field.name}", is_nullable(field, self.version))
        if self.flexible:
            self.tags([field for field in present if field.tag is not None], term)

    def value(self, shape: Shape, name: str, term: str, null_allowed: bool) -> None:
        if isinstance(shape, Kind):
            if shape.format:
                self.run.add(shape.format, term)
            elif shape.name == "records":
                self.records(name, term)
            else:
                self.sized(shape, name, term, null_allowed)
        elif isinstance(shape, Array):
            self.array(shape, name, term, null_allowed)
        elif null_allowed:
            self.nullable_struct(shape, name, term)
        else:
            self.struct(shape, term)

    def head(self, count: str, format_character: str, two_bytes_likely: bool = False) -> None:
        """Write the code for a length or count, -1 for null, together with the run before it."""
        source = self.source
        if not self.flexible:
            self.run.add(format_character, count)
            self.flush()
            return
        layout, terms = self.run.take()
        source.add(f"{count} += 1")
        source.open(f"if {count} < 128:")
        source.add(f"append({self.packed(layout + 'B', [*terms, count])})")
        source.close()
        if two_bytes_likely:
            source.open(f"elif {count} < 16384:")
            source.add(f"append({self.packed(layout + 'BB', [*terms, f'{count} & 127 | 128', f'{count} >> 7'])})")
            source.close()
        source.open("else:")
        if terms:
            source.add(f"append({self.packed(layout, terms)})")
        source.add(f"append(uvarint({count}))")
        source.close()

    def sized(self, kind: Kind, name: str, term: str, null_allowed: bool) -> None:
        source, data, length = self.source, self.source.local(name), self.source.local("length")
        source.add(f"{data} = {term}")
        if null_allowed:
            source.open(f"if {data} is None:")
            source.add(f"{data} = b''", f"{length} = -1")
            source.close()
            source.open("else:")
        if kind.name == "string":
            source.add(f"{data} = {data}.encode()")
        source.add(f"{length} = len({data})")
        if null_allowed:
            source.close()
        self.head(length, "h" if kind.name == "string" else "i")
        source.add(f"append({data})")

    def records(self, name: str, term: str) -> None:
        source, data, length = self.source, self.source.local(name), self.source.local("length")
        source.add(f"{data} = {term}", f"several = type({data}) is list")
        source.add(f"{length} = -1 if {data} is None else sum(map(len, {data})) if several else len({data})")
        self.head(length, "i", two_bytes_likely=True)
        source.open(f"if {data}:")
        source.add("buffers.append(join(fragments))", "fragments.clear()")
        source.open("if several:")
        source.add(f"buffers += {data}")
        source.close()
        source.open("else:")
        source.add(f"buffers.append({data})")
        source.close()
        source.close()

    def array(self, shape: Array, name: str, term: str, null_allowed: bool) -> None:
        source, items, count = self.source, self.source.local(name), self.source.local("count")
        source.add(f"{items} = {term}")
        if null_allowed:
            source.add(f"{count} = -1 if {items} is None else len({items})")
        else:
            source.add(f"{count} = len({items})")
        if isinstance(shape.element, Kind) and len(shape.element.format) == 1:
            self.numbers(shape.element.format, items, count)
            return
        self.head(count, "i")
        source.open(f"if {items}:")
        item = source.local("item")
        source.open(f"for {item} in {items}:")
        self.value(shape.element, name, item, null_allowed=False)
        self.flush()
        source.close()
        source.close()

    def numbers(self, format_character: str, items: str, count: str) -> None:
        """Write the code for an array of numbers; a short array (mostly replicas) joins the run and the count."""
        source, run, self.run = self.source, self.run, Run()
        layout = f">{''.join(run.formats)}{'B' if self.flexible else 'i'}"
        packers = [_packer(f"{layout}{length}{format_character}") for length in range(_SHORT_ARRAY)]
        table = source.constant(packers, "packers")
        head = f"{count} + 1" if self.flexible else count
        source.open(f"if 0 <= {count} < {_SHORT_ARRAY}:")
        source.add(f"append({table}[{count}]({', '.join([*run.terms, head, f'*{items}'])}))")
        source.close()
        source.open("else:")
        self.run = run
        self.head(count, "i")
        source.open(f"if {items}:")
        source.add(f"append(pack(f'>{{len({items})}}{format_character}', *{items}))")
        source.close()
        source.close()

    def nullable_struct(self, shape: type[msgspec.Struct], name: str, term: str) -> None:
        source, value = self.source, self.source.local(name)
        source.add(f"{value} = {term}")
        self.run.add("b", f"-1 if {value} is None else 1")
        self.flush()
        source.open(f"if {value} is not None:")
        self.struct(shape, value)
        self.flush()
        source.close()

    def tags(self, fields: list[Field], term: str) -> None:
        """Write the code for the tagged fields (KIP-482); like Kafka it leaves out fields with their default value."""
        if not fields:
            self.run.add("B", _NO_TAG_COUNT)
            return
        source = self.source
        self.flush()
        tests = {field.name: self.differs(field, f"{term}.{field.name}") for field in fields}
        source.open(f"if {' or '.join(tests.values())}:")
        found = source.local("tagged")
        source.add(f"{found} = []")
        for field in fields:
            encode = source.constant(_Encoder(self.version, self.flexible).make_fragment(field), "encode")
            source.open(f"if {tests[field.name]}:")
            source.add(f"{found}.append(({field.tag}, {encode}({term}.{field.name})))")
            source.close()
        source.add(f"append(tag_section({found}))")
        source.close()
        source.open("else:")
        source.add(f"append({_NO_TAGS})")
        source.close()

    def differs(self, field: Field, term: str) -> str:
        if not isinstance(field.default, msgspec.Struct):
            return f"{term} != {field.default!r}"
        default = self.source.constant(field.default, "default")
        return f"({term} is not {default} and {term} != {default})"


def _packer(layout: str) -> Callable[..., Any]:
    return struct.Struct(layout).pack
