"""`penstock group`: groups of consumers, their members, their lag and their offsets.

`finding` and `members` read a group of any kind, `streams` those of Kafka Streams. `reading` lists and describes, `lag`
compares offsets with the ends of partitions, `resetting` changes offsets. `share_offsets` reads and changes those of
share groups.
"""

from penstock.cli.command_line import NewParser, add_verbs
from penstock.cli.groups import lag, reading, resetting


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock group` with the command line."""
    parser = new_parser(description="Groups of consumers: members, lag and offsets. All verbs speak Kafka.")
    verbs = add_verbs(parser)
    for module in (reading, lag, resetting):
        module.add_to(verbs)
