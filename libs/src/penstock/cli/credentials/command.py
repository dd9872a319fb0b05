"""The flags of `penstock credentials`."""

import argparse
import sys
from pathlib import Path

from penstock.cli.command_line import NewParser
from penstock.cli.credentials.passwords import make_credentials
from penstock.cli.credentials.wanted import Wanted
from penstock.contracts.errors import PenstockError
from penstock.runtime.clock import SystemEntropy


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock credentials` with the command line."""
    parser = new_parser(description="Create a NATS user and an S3 key for each service. Existing ones are kept.")
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        help="folder for the results: one folder for each service, for nats and for s3",
    )
    parser.add_argument(
        "--owner", metavar="UID", type=int, help="owner of the services' files (the caller; another owner needs root)"
    )
    parser.add_argument(
        "--s3-owner",
        metavar="UID",
        type=int,
        help="owner of the file of the S3 server (the caller; another owner needs root)",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        default=Wanted().cluster,
        help="virtual cluster whose subjects and objects the users may use (%(default)s)",
    )
    parser.add_argument(
        "--clusters",
        metavar="NAME,...",
        default="",
        help="virtual clusters of services that host several, or *; the users may then use what belongs to any cluster",
    )
    parser.add_argument(
        "--with-old-services",
        action="store_true",
        help="let services of release 0.1 send commands too, during an upgrade without a stop",
    )
    parser.add_argument("--http-token", action="store_true", help="also make a token for the metrics of all services")
    parser.add_argument(
        "--rotate",
        metavar="USER",
        action="append",
        default=[],
        help="replace the secrets of this user; servers and its processes must read their files again",
    )
    parser.add_argument(
        "--bucket",
        metavar="NAME[/PATH]",
        default=Wanted().bucket,
        help="bucket that the keys give access to, and the path in the store's address (%(default)s)",
    )
    parser.add_argument(
        "--nats-nodes",
        metavar="HOST[:PORT],...",
        default=",".join(Wanted().nats_nodes),
        help="servers of the NATS cluster, if there is one (%(default)s)",
    )
    _add_certificates(parser)
    parser.set_defaults(run=run)


def _add_certificates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tls", action="store_true", help="also make a certificate for the servers and for each user of NATS"
    )
    parser.add_argument(
        "--nats-hosts",
        metavar="HOST,...",
        default="",
        help="more names and addresses of the NATS servers, for their certificate",
    )
    parser.add_argument(
        "--kafka-hosts",
        metavar="HOST,...",
        default="",
        help="names and addresses of gateways for clients: also make a certificate for them, and an administrator",
    )


def run(arguments: argparse.Namespace) -> int:
    """Create missing credentials; 0 if the set is complete now, 1 with one sentence if that is not possible."""
    folder = arguments.folder
    bucket, _, prefix = arguments.bucket.rstrip("/").partition("/")
    try:
        wanted = Wanted(
            cluster=arguments.cluster,
            hosts_clusters=bool(arguments.clusters),
            with_old_services=arguments.with_old_services,
            with_tls=arguments.tls,
            nats_hosts=tuple(filter(None, arguments.nats_hosts.split(","))),
            kafka_hosts=tuple(filter(None, arguments.kafka_hosts.split(","))),
            with_http_token=arguments.http_token,
            rotate=tuple(arguments.rotate),
            bucket=bucket,
            prefix=prefix,
            nats_nodes=tuple(arguments.nats_nodes.split(",")),
            owner=arguments.owner,
            s3_owner=arguments.s3_owner,
        )
        written = make_credentials(folder, wanted, SystemEntropy())
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    print(f"credentials in {folder}: {'wrote ' + ', '.join(written) if written else 'complete'}")
    return 0
