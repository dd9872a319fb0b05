"""`penstock janitor`: asks a running janitor why it keeps or deletes an object in the store."""

import argparse
import asyncio
import json
import sys

import msgspec

from penstock.cli.command_line import NewParser
from penstock.cli.running import INTERRUPTED_EXIT_CODE, add_cluster_flags, connected_bus, read_cluster
from penstock.contracts import codec, subjects
from penstock.contracts.errors import PenstockError, Unavailable, Undelivered
from penstock.contracts.messages import ExplainReply, ExplainRequest
from penstock.runtime.bus.bus import Bus
from penstock.runtime.process.logs import configure_logs

ANSWER_TIMEOUT_S = 20.0  # the janitor asks sequencers and the store first


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock janitor` with the command line."""
    parser = new_parser(description="Ask a running janitor about an object. Nothing is deleted.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    explain = verbs.add_parser(
        "explain",
        help="report why an object is kept or deleted",
        description="Report whether the object with this key is kept or deleted, with the reason and the facts.",
    )
    explain.add_argument("key", metavar="KEY", help="key of the object, as the store lists it")
    explain.add_argument("--json", action="store_true", help="print the answer as JSON")
    add_cluster_flags(explain, with_store=False)
    explain.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask a janitor; 0 with the answer, 1 with one sentence if there is none."""
    configure_logs("janitor-explain", "janitor-explain", "error", "auto")
    try:
        reply = asyncio.run(_explain(arguments))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    print(as_json(reply) if arguments.json else as_text(reply))
    return 0


async def _explain(arguments: argparse.Namespace) -> ExplainReply:
    cluster = read_cluster(arguments)
    async with connected_bus(cluster, "penstock-janitor-explain") as bus:
        return await ask_janitor(bus, cluster.cluster, arguments.key)


async def ask_janitor(bus: Bus, cluster: str, key: str) -> ExplainReply:
    """A janitor's answer about the object; `Unavailable` with the reason if there is no answer now."""
    request = codec.encode(ExplainRequest(key))
    try:
        answer = await bus.request(subjects.explain(cluster), request, ANSWER_TIMEOUT_S)
    except Undelivered as error:
        raise Unavailable(f"no janitor runs for cluster {cluster!r}") from error
    reply = codec.decode(answer, ExplainReply)
    if reply.failure is not None:
        raise Unavailable(f"the janitor cannot answer now: {reply.failure}")
    return reply


def as_text(reply: ExplainReply) -> str:
    """The object's state and its reason, then the facts one by one."""
    width = max(map(len, reply.facts), default=0)
    return "\n".join(
        [f"{reply.state}: {reply.reason}", *(f"  {name:<{width}}  {value}" for name, value in reply.facts.items())]
    )


def as_json(reply: ExplainReply) -> str:
    """The same as one JSON object."""
    return json.dumps({"verdict": reply.state, "reason": reply.reason, "facts": msgspec.to_builtins(reply.facts)})
