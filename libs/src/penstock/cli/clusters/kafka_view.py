"""A cluster as its clients see it: its gateways, its contents in numbers, and its configurations. All speak Kafka."""

import argparse
from typing import Any

from penstock.cli.kafka.configs import read_configs
from penstock.cli.kafka.session import Session, add_verb
from penstock.cli.output import Listing, Report


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    add_verb(verbs, "info", show_info, help="show gateways, and count topics and groups")
    configs = add_verb(verbs, "config", list_configs, help="list the configurations of the cluster")
    configs.add_argument("pattern", nargs="?", default="", metavar="TEXT", help="only names that contain this text")
    configs.add_argument("--changed", action="store_true", help="only those that are not at their defaults")
    add_verb(verbs, "features", list_features, help="list the feature levels of the cluster")


def show_info(arguments: argparse.Namespace, session: Session) -> Report:
    """The gateways, and how much the cluster has."""
    cluster = session.admin.describe_cluster()
    topics = [topic for topic in session.admin.describe_topics(None) if not topic["is_internal"]]
    groups = {group["group_id"] for group in session.admin.list_groups()}
    leaderless = [each for topic in topics for each in topic["partitions"] if each["leader_id"] < 0]
    return Report(
        {
            "cluster_id": cluster["cluster_id"],
            "topics": len(topics),
            "partition_count": sum(len(topic["partitions"]) for topic in topics),
            "partitions_without_leader": len(leaderless),
            "groups": len(groups),
            "gateways": [_gateway(each, cluster["controller_id"]) for each in cluster["brokers"]],
        }
    )


def _gateway(broker: dict[str, Any], controller_id: int) -> dict[str, Any]:
    return {
        "broker_id": broker["broker_id"],
        "address": f"{broker['host']}:{broker['port']}",
        "zone": broker.get("rack"),
        "controller": broker["broker_id"] == controller_id,
    }


def list_configs(arguments: argparse.Namespace, session: Session) -> Listing:
    """The configurations of a gateway, which are those of all."""
    broker_id = session.admin.describe_cluster()["brokers"][0]["broker_id"]
    found = read_configs(session, "BROKER", str(broker_id), only_changed=arguments.changed)
    return Listing([each for each in found if arguments.pattern in each["name"]], "there are no such configurations")


def list_features(arguments: argparse.Namespace, session: Session) -> Listing:
    """The levels that gateways support, and the one in use."""
    rows = [
        {
            "name": name,
            "minimum": levels.get("supported", (None, None))[0],
            "maximum": levels.get("supported", (None, None))[1],
            "in_use": levels.get("finalized", (None, None))[1],
        }
        for name, levels in sorted(session.admin.describe_features().items())
    ]
    return Listing(rows, "the cluster lists no features")
