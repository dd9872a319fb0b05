"""`penstock topic`: topics, their configurations, and their records.

`reading` lists and describes, `changing` creates, alters and deletes, `deleted` brings deleted topics back. The verbs
for records are in `penstock.cli.records`.
"""

from penstock.cli.command_line import NewParser, add_verbs
from penstock.cli.records import consume, produce
from penstock.cli.topics import changing, deleted, reading


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock topic` with the command line."""
    parser = new_parser(description="Topics of a cluster and their records. All but the last two verbs speak Kafka.")
    verbs = add_verbs(parser)
    for module in (reading, changing, produce, consume, deleted):
        module.add_to(verbs)
