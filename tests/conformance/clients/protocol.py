"""What a client's driver is asked, and the loop that answers; the drivers in other languages do the same.

    produce(topic, codec, values, keys?)     offsets of the values in their order, all in partition 0; or null
    consume(topic, count, committed?)        `count` of [partition, offset, key, value], from the beginning, without a
                                             group where there is a way
    join(group, topics, protocol?, instance?)    null; "classic" or "consumer"; from the earliest, else as by default;
                                             with an instance id it is a static member, with a longer session
    poll(for_ms)                             {"records": [[partition, offset, value]],
                                              "assignment": [[topic, partition]]}
    leave()                                  null; the member has committed what it was given
    share_join(group, topic)                 null; a member of a share group, which acknowledges each record
    share_poll(for_ms, verdict)              [[offset, value, delivery count]], acknowledged by the verdict: accept,
                                             release or reject; "": only what one poll brings, and nothing acknowledged
    share_leave()                            null
    transform_start(source, target, group, transactional_id)    null; the transactional id is its own now
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
    group_offsets(group, topic, partitions)                     {partition as text: offset}, of those that have one
    set_group_offset(group, topic, partition, offset)           null
    delete_group_offset(group, topic, partition)                null
    delete_group(group)                                         null

The steps of `transform_once`: begun, sent, offsets, committing, committed. At the one that is `hold` it says so and
waits for a line; at "committing" it says so and commits without waiting. With `abort` it aborts in place of
committing, and stands before the same records again.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from tests.conformance.driver import MARK

SESSION_TIMEOUT_MS = 6_000  # the shortest that Kafka allows; else a killed member is missed only after 45 s
STATIC_SESSION_TIMEOUT_MS = 30_000  # time enough to be killed and come back
IDLE_S = 1.0
CONSUME_TIMEOUT_S = 60.0


def say(message: dict[str, Any]) -> None:
    """One line of the protocol."""
    sys.stdout.write(MARK + json.dumps(message) + "\n")
    sys.stdout.flush()


def heard() -> dict[str, Any] | None:
    """The next request; None at the end of input."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def pausing(hold: str | None) -> Callable[[str], None]:
    """A function to call at each step, which stops at the one that is `hold`."""

    def at(step: str) -> None:
        if step == hold:
            say({"at": step})
            if step != "committing":
                heard()

    return at


def serve(client: Any, hello: dict[str, Any]) -> None:
    """Answer requests with the methods of `client` until input ends."""
    say({"hello": hello})
    while (request := heard()) is not None:
        name = request.pop("do")
        method = getattr(client, name, None)
        if method is None:
            say({"not_offered": name})
            continue
        try:
            say({"ok": method(**request)})
        except NotImplementedError as error:
            say({"not_offered": f"{name} {error}".strip()})
        except Exception as error:  # noqa: BLE001 - whatever a client raises is its answer
            say({"error": f"{type(error).__name__}: {error}"})


async def serve_asynchronously(client: Any, hello: dict[str, Any]) -> None:
    """The same for a client whose methods are coroutines, and whose tasks go on between requests."""
    loop = asyncio.get_running_loop()
    say({"hello": hello})
    while (request := await loop.run_in_executor(None, heard)) is not None:
        name = request.pop("do")
        method = getattr(client, name, None)
        if method is None:
            say({"not_offered": name})
            continue
        try:
            say({"ok": await method(**request)})
        except NotImplementedError as error:
            say({"not_offered": f"{name} {error}".strip()})
        except Exception as error:  # noqa: BLE001 - whatever a client raises is its answer
            say({"error": f"{type(error).__name__}: {error}"})
