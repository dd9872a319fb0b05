"""Changes the number of copies of the journal, and of the landing store, at the same NATS servers."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.subjects import journal_stream, landing_stream
from penstock.runtime.nats.client import NatsConnection
from penstock.runtime.nats.stream import STREAM_NOT_FOUND


class CopiesLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the servers may take to copy a stream."""

    ask_timeout_s: float = 10.0
    retry_s: float = 0.2
    deadline_s: float = 600.0


COPIES_LIMITS = CopiesLimits()


async def change_copies(
    connection: NatsConnection,
    cluster: str,
    copies: int,
    *,
    is_dry_run: bool,
    report: Callable[[str], None],
    limits: CopiesLimits = COPIES_LIMITS,
) -> None:
    """Set the copies of both streams, and return when each copy is complete. Sequencers and clients go on meanwhile.

    `Invalid` if there are too few servers, or no journal.
    """
    for stream in (journal_stream(cluster), landing_stream(cluster)):
        config = await _config(connection, stream, limits)
        if config is None and stream == journal_stream(cluster):
            raise Invalid(f"the nats servers have no stream {stream}. Nothing was changed")
        if config is None:
            continue
        found = config["num_replicas"]
        report(f"stream {stream}: {found} copies" + (f", will be {copies}" if found != copies else ", stays so"))
        if is_dry_run or found == copies:
            continue
        await _ask(connection, f"UPDATE.{stream}", {**config, "num_replicas": copies}, limits)
        await _until_complete(connection, stream, copies, limits)
        report(f"stream {stream}: {copies} complete copies")


async def _config(connection: NatsConnection, stream: str, limits: CopiesLimits) -> dict[str, Any] | None:
    reply = await _ask(connection, f"INFO.{stream}", None, limits)
    config: dict[str, Any] | None = reply.get("config")
    return config


async def _until_complete(connection: NatsConnection, stream: str, copies: int, limits: CopiesLimits) -> None:
    deadline_s = asyncio.get_running_loop().time() + limits.deadline_s
    while True:
        with contextlib.suppress(Unavailable):  # the leader may change with the copies
            if await _is_complete(connection, stream, copies, limits):
                return
        if asyncio.get_running_loop().time() > deadline_s:
            raise Unavailable(f"the copies of {stream} are not complete after {limits.deadline_s:g} s; they go on")
        await asyncio.sleep(limits.retry_s)


async def _is_complete(connection: NatsConnection, stream: str, copies: int, limits: CopiesLimits) -> bool:
    cluster = (await _ask(connection, f"INFO.{stream}", None, limits)).get("cluster") or {}
    others = cluster.get("replicas") or []
    return bool(cluster.get("leader")) and len(others) == copies - 1 and all(each.get("current") for each in others)


async def _ask(connection: NatsConnection, verb: str, request: object, limits: CopiesLimits) -> dict[str, Any]:
    data = b"" if request is None else msgspec.json.encode(request)
    answer = await connection.bus.request(f"$JS.API.STREAM.{verb}", data, limits.ask_timeout_s)
    try:
        reply: dict[str, Any] = msgspec.json.decode(answer, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError) as failure:
        raise Corrupt(f"jetstream's answer cannot be read: {failure}") from failure
    error = reply.get("error")
    if error is not None and request is not None:
        raise Invalid(f"the nats servers reject the change: {error.get('description')}. Nothing was changed")
    if error is not None and error.get("err_code") != STREAM_NOT_FOUND:
        raise Unavailable(f"the nats servers do not describe the stream: {error.get('description')}")
    return reply
