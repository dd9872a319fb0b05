"""Services with and without traces understand each other: a trace is the last field of a message, and optional."""

import msgspec
import pytest

from penstock.contracts import codec
from penstock.contracts.commands import CommandRequest, Tick
from penstock.contracts.messages import CacheRequest, FlushProduce
from tests.testkit.recorded_traces import traceparent

MESSAGES = [
    FlushProduce(1, 0, 1, [], principal="User:bob", trace=traceparent(1)),
    CacheRequest([], trace=traceparent(1)),
    CommandRequest([Tick(1)], 7, trace=traceparent(1)),
]


def earlier(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The message as a release without traces knows it."""
    fields = [
        (field.name, field.type, *([] if field.default is msgspec.NODEFAULT else [field.default]))
        for field in msgspec.structs.fields(kind)
        if field.name != "trace"
    ]
    return msgspec.defstruct(kind.__name__, fields, frozen=True, array_like=True)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_an_earlier_release_ignores_the_trace(message: msgspec.Struct) -> None:
    decoded = codec.decode(codec.encode(message), earlier(type(message)))
    assert msgspec.structs.asdict(decoded) == {
        name: value for name, value in msgspec.structs.asdict(message).items() if name != "trace"
    }


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_of_an_earlier_release_has_no_trace(message: msgspec.Struct) -> None:
    sent = codec.decode(codec.encode(message), earlier(type(message)))
    assert codec.decode(codec.encode(sent), type(message)) == msgspec.structs.replace(message, trace="")
