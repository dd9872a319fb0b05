"""`penstock explain`: the life of one record, or where the time of records goes."""

import argparse

from penstock.cli.command_line import NewParser
from penstock.cli.output import Report, add_output_flag
from penstock.cli.running import add_cluster_flags, read_cluster, run

LATENCY = "latency"
SECONDS_DEFAULT = 10.0


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock explain` with the command line."""
    parser = new_parser(
        description="Explain a record, named as TOPIC/PARTITION@OFFSET: its producer, its segment, its journal entry "
        "and its cost. Or explain latency: the time of each stage from produce to consume, with advice. The command "
        "needs access to NATS and to the store, and no login."
    )
    parser.add_argument("subject", metavar="TOPIC/PARTITION@OFFSET | latency", help="a record, or the word latency")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS_DEFAULT,
        metavar="S",
        help="measure the latency for so long (%(default)g)",
    )
    add_output_flag(parser)
    add_cluster_flags(parser)
    parser.set_defaults(run=run, run_verb=explain)


async def explain(arguments: argparse.Namespace) -> Report:
    """Explain the subject."""
    if arguments.subject == LATENCY:
        from penstock.cli.diagnosis.latency import explain_latency

        return await explain_latency(read_cluster(arguments), arguments.seconds)
    from penstock.cli.diagnosis.record import explain_record
    from penstock.cli.groups.resetting import parse_place

    (topic, partition), offset = parse_place(arguments.subject)
    return await explain_record(read_cluster(arguments), topic, partition, offset)
