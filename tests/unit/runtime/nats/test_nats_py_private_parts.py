"""Each private part of nats-py and of asyncio's streams that Penstock uses still has the expected shape.

A failure here names the part, its use and the reason. Adapt `penstock.runtime.nats` to the new shape. Run
tests/integration/test_nats_bulk.py, test_runtime_nats.py and test_runtime_nats_cluster.py. Then change the list below.
"""

import ast
import asyncio
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.protocol.command import PUB_OP
from nats.protocol.parser import Parser

from penstock.runtime import nats as package

FOLDER = Path(package.__file__).parent
PINS = Path(__file__).parents[4] / "pyproject.toml"
CLIENT, BULK = "patched_client.py", "bulk_messages.py"
REMEDY = "The first lines of this test module describe the steps."


class Part(msgspec.Struct, frozen=True):
    """One undocumented part of a library's class."""

    owner: type
    name: str
    used_in: str
    why: str
    shape: object  # for a method its parameters with defaults, for an attribute its type or None


PARTS = [
    Part(Client, "_ps", CLIENT, "replaced by the parser that copies a payload once", Parser),
    Part(Client, "_server_info", CLIENT, "shows whether the server is one of a cluster", dict),
    Part(Client, "_transport", CLIENT, "replaced by the transport of large reads; cut when a server is dead", None),
    Part(Client, "_pending", CLIENT, "large payloads are appended as they are, and dropped on a reconnect", list),
    Part(Client, "_pending_data_size", CLIENT, "counts the bytes in `_pending`", int),
    Part(Client, "_flush_queue", CLIENT, "a publish starts a flush only if none waits", None),
    Part(Client, "_send_unsubscribe", CLIENT, "the first step of a drain that loses nothing", "sid, limit=0"),
    Part(Client, "_attempt_reconnect", CLIENT, "drops the unsent bytes before another server is tried", ""),
    Part(Client, "_connect_to_server", CLIENT, "replaces the library's transport with ours", "s"),
    Part(
        Client,
        "_send_publish",
        CLIENT,
        "sends a large payload without a copy",
        "subject, reply, payload, payload_size, headers",
    ),
    Part(Client, "_send_command", CLIENT, "ends the three parts of a large message", "cmd, priority=False"),
    Part(Client, "_flush_pending", CLIENT, "wakes the task that writes to the socket", "force_flush=False"),
    Part(Client, "_process_msg", BULK, "takes a message from the parser", "sid, subject, reply, data, headers"),
    Part(Subscription, "_id", CLIENT, "names the subscription that the server is to end", int),
    Part(Subscription, "_pending_queue", CLIENT, "is empty when the handler has processed all messages", asyncio.Queue),
    Part(TcpTransport, "_bare_io_reader", BULK, "our connection is opened in the same way", None),
    Part(TcpTransport, "_io_reader", BULK, "our connection is opened in the same way", None),
    Part(TcpTransport, "_bare_io_writer", BULK, "our connection is opened in the same way", None),
    Part(
        TcpTransport,
        "_io_writer",
        BULK,
        "our connection is opened in the same way, and cut with its unsent bytes",
        None,
    ),
    Part(TcpTransport, "connect", BULK, "opens a connection with large reads", "uri, buffer_size, connect_timeout"),
    Part(TcpTransport, "read", BULK, "reads large chunks", "buffer_size"),
    Part(TcpTransport, "__bool__", BULK, "the library replaces a transport that is false", ""),
    Part(Parser, "reset", BULK, "begins a connection without fragments of the last one", ""),
    Part(Parser, "parse", BULK, "takes fragments of large payloads first", "data=b''"),
    Part(Parser, "buf", BULK, "its slices are bytes, without another copy", bytearray),
    Part(Parser, "state", BULK, "shows whether a payload is awaited", int),
    Part(Parser, "needed", BULK, "is the length of the payload", int),
    Part(Parser, "header_needed", BULK, "a message with headers is left to the library's parser", int),
    Part(Parser, "msg_arg", BULK, "has the subject, the reply subject and the id of the message", dict),
    Part(Parser, "nc", BULK, "is the client that takes the message", None),
    Part(asyncio.StreamReader, "_wakeup_waiter", BULK, "wakes a reader when a chunk came", ""),
    Part(asyncio.StreamReader, "_wait_for_data", BULK, "waits for a chunk", "func_name"),
    Part(asyncio.StreamReader, "_paused", BULK, "shows that the socket is not read", bool),
    Part(asyncio.StreamReader, "_limit", BULK, "is the number of bytes that stops reads from the socket", int),
    Part(asyncio.StreamReader, "_transport", BULK, "is paused and resumed", None),
    Part(asyncio.StreamReader, "_exception", BULK, "is raised to a reader", None),
    Part(asyncio.StreamReader, "_buffer", BULK, "has the bytes that came while lines were read", bytearray),
    Part(asyncio.StreamReader, "_eof", BULK, "shows that no more bytes come", bool),
]
# The code of nats-py that must call the replaced parts. Otherwise the replacements are without effect.
CALLERS = [
    (Client, "publish", "self._send_publish(subject, reply, payload, payload_size, headers)"),
    (Client, "_select_next_server", "self._connect_to_server("),
    (Client, "_connect_to_server", "if not self._transport:"),
    (Client, "_process_op_err", "self._attempt_reconnect()"),
    (Client, "_read_loop", "self._ps.parse("),
    (Client, "_read_loop", "self._transport.read("),
    (Client, "_process_msg", "self._subs.get(sid)"),
    (Parser, "parse", "self.buf.extend(data)"),
    (Parser, "parse", "bytes(self.buf[: self.needed])"),
]


def instances() -> dict[type, object]:
    client = Client()
    reader = asyncio.StreamReader(loop=asyncio.get_running_loop())
    made = (client, Subscription(client), TcpTransport(), Parser(client), reader)
    return {type(each): each for each in made}


def parameters_of(method: Any) -> str:
    shown = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in list(inspect.signature(method).parameters.values())[1:]
    ]
    return ", ".join(shown)


def explain(part: Part, problem: str) -> str:
    library = "asyncio" if part.owner is asyncio.StreamReader else f"nats-py {version('nats-py')}"
    return (
        f"{library}: {part.owner.__name__}.{part.name} {problem}. Used in penstock/runtime/nats/{part.used_in}: "
        f"{part.why}. {REMEDY}"
    )


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.owner.__name__}.{part.name}")
async def test_a_private_part_has_the_expected_shape(part: Part) -> None:
    owner = instances()[part.owner]
    assert hasattr(owner, part.name), explain(part, "is gone")
    if isinstance(part.shape, str):
        found = parameters_of(getattr(part.owner, part.name))
        assert found == part.shape, explain(part, f"takes ({found}), and ({part.shape}) is expected")
    elif isinstance(part.shape, type):
        value = getattr(owner, part.name)
        assert isinstance(value, part.shape), explain(part, f"is {value!r}, and a {part.shape.__name__} is expected")


@pytest.mark.parametrize(("owner", "method", "call"), CALLERS)
def test_the_library_uses_the_parts_that_we_replace(owner: type, method: str, call: str) -> None:
    where = f"nats-py {version('nats-py')}: {owner.__name__}.{method}"
    assert hasattr(owner, method), f"{where} is gone. {REMEDY}"
    assert call in inspect.getsource(getattr(owner, method)), (
        f"{where} has no `{call}`, so a part of {CLIENT} or {BULK} may be without effect. {REMEDY}"
    )


def test_a_publish_command_begins_as_we_write_it() -> None:
    assert f"{PUB_OP} " == "PUB "


def private_names(module: str) -> set[str]:
    tree = ast.parse((FOLDER / module).read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


async def test_every_private_part_that_we_use_is_in_the_list() -> None:
    """Names that no class of the libraries has belong to Penstock."""
    used = private_names(CLIENT) | private_names(BULK)
    of_libraries = {name for name in used if any(hasattr(each, name) for each in instances().values())}
    assert of_libraries == {part.name for part in PARTS if re.match(r"_[^_]", part.name)}


def test_no_other_module_uses_private_parts_of_another_object() -> None:
    found = []
    for path in FOLDER.glob("*.py"):
        if path.name in (CLIENT, BULK):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                found += [] if is_own else [f"{path.name}:{node.lineno} {ast.unparse(node)}"]
    assert not found, f"only {CLIENT} and {BULK} may use private parts: {found}"


def test_the_library_is_pinned_below_its_next_minor_release() -> None:
    [pin] = [each for each in tomllib.loads(PINS.read_text())["project"]["dependencies"] if each.startswith("nats-py")]
    bounds = re.fullmatch(r"nats-py>=(\d+)\.(\d+),<(\d+)\.(\d+)", pin)
    assert bounds is not None, f"nats-py has no bounds: {pin}"
    major, minor, *below = map(int, bounds.groups())
    assert below == [major, minor + 1], pin
