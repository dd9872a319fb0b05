"""`penstock cluster`: virtual clusters of a deployment, and one cluster as its clients see it.

May import the modules of `penstock.cli` except other commands. `registered` speaks to the object store and to NATS,
`kafka_view` to a gateway.
"""

from penstock.cli.clusters import kafka_view, nats_config, registered
from penstock.cli.command_line import NewParser, add_verbs

__all__ = ["add_parser"]


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock cluster` with the command line."""
    verbs = add_verbs(
        new_parser(
            description="Virtual clusters. create, list, describe, alter, delete and undelete need the object store of "
            "the deployment; create and describe also ask NATS. info, config and features speak Kafka."
        )
    )
    registered.add_to(verbs)
    nats_config.add_to(verbs)
    kafka_view.add_to(verbs)
