"""The requests to a client's driver, and the loop that answers them; drivers in other languages do the same.

The arguments of a driver are the cluster's address, and the file of a login if the address needs one.

    produce(topic, codec, values, keys?)     offsets of the values in their order, all in partition 0; or null
    consume(topic, count, committed?)        `count` of [partition, offset, key, value], from the beginning, without a
                                             group where there is a way
    join(group, topics, protocol?, instance?)    null; "classic" or "consumer"; from the earliest offset, all else by
                                             default; with an instance id a static member, with a longer session
    poll(for_ms)                             {"records": [[partition, offset, value]],
                                              "assignment": [[topic, partition]]}
    leave()                                  null; the member has committed the offsets of its records
    share_join(group, topic)                 null; a member of a share group, which acknowledges each record
    share_poll(for_ms, acknowledge_type, others?)    [[offset, value, delivery count]], acknowledged with accept,
                                             release or reject; "": the records of one poll, without an acknowledgement;
                                             `others` has other types by value
    share_leave()                            null
    transform_start(source, target, group, transactional_id)    null; the client now owns the transactional id
    transform_once(batch_max, hold?, abort?)                    records in the transaction; 0: none for a second
    create_topic(topic, partitions, configs)                    null
    list_topics()                                               names
    describe_topic(topic)                                       {"partitions": N}
    add_partitions(topic, total)                                null
    delete_topic(topic)                                         null
    describe_configs(topic)                                     {name: value}
    alter_config(topic, name, value)                            null; a null value means its default
    list_offsets(topic)                                         {partition as text: [earliest, latest]}
    delete_records(topic, partition, before)                    null
    list_groups()                                               names
    describe_group(group)                                       {"state": "STABLE", ..., "members": N}
    group_offsets(group, topic, partitions)                     {partition as text: offset}, without empty ones
    set_group_offset(group, topic, partition, offset)           null
    delete_group_offset(group, topic, partition)                null
    delete_group(group)                                         null

The steps of `transform_once`: begun, sent, offsets, committing, committed. At the step `hold` it reports the step and
waits for a line. At "committing" it reports the step, and commits without waiting. With `abort` it aborts instead of
committing, and reads the same records again.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from tests.conformance.driver import MARK

SESSION_TIMEOUT_MS = 6_000  # Kafka's minimum; with the default, a killed member is removed only after 45 s
STATIC_SESSION_TIMEOUT_MS = 30_000  # long enough for a kill and a restart
IDLE_S = 1.0
CONSUME_TIMEOUT_S = 60.0


def write(message: dict[str, Any]) -> None:
    """Write one line of the protocol."""
    sys.stdout.write(MARK + json.dumps(message) + "\n")
    sys.stdout.flush()


def next_request() -> dict[str, Any] | None:
    """The next request; None at the end of input."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def pausing(hold: str | None) -> Callable[[str], None]:
    """A function to call at each step, which waits at the step `hold`."""

    def at(step: str) -> None:
        if step == hold:
            write({"at": step})
            if step != "committing":
                next_request()

    return at


def serve(client: Any, hello: dict[str, Any]) -> None:
    """Answer requests with the methods of `client` until input ends."""
    write({"hello": hello})
    while (request := next_request()) is not None:
        name = request.pop("do")
        method = getattr(client, name, None)
        if method is None:
            write({"not_offered": name})
            continue
        try:
            write({"ok": method(**request)})
        except NotImplementedError as error:
            write({"not_offered": f"{name} {error}".strip()})
        except Exception as error:  # noqa: BLE001 - the answer is the client's exception
            write({"error": f"{type(error).__name__}: {error}"})


async def serve_asynchronously(client: Any, hello: dict[str, Any]) -> None:
    """The same for a client with coroutines, whose tasks run also between requests."""
    loop = asyncio.get_running_loop()
    write({"hello": hello})
    while (request := await loop.run_in_executor(None, next_request)) is not None:
        name = request.pop("do")
        method = getattr(client, name, None)
        if method is None:
            write({"not_offered": name})
            continue
        try:
            write({"ok": await method(**request)})
        except NotImplementedError as error:
            write({"not_offered": f"{name} {error}".strip()})
        except Exception as error:  # noqa: BLE001 - the answer is the client's exception
            write({"error": f"{type(error).__name__}: {error}"})
