"""The users of a cluster, and the settings of a set of credentials."""

import re

import msgspec

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import check_token

# A new service needs its name in `ROLES`, its subjects in `nats_accounts`, and its rights in `store_rights`.
ADMIN = "admin"  # for operators, with `penstock` on the command line
JOURNAL = "journal"  # for `penstock journal` and `penstock rebuild`
OPERATORS = (ADMIN, JOURNAL)  # commands use them, no service does
AGENT = "agent"
CONSOLE = "console"  # it asks sequencers and gateways, and reads no store
AGENT_ROLES = ("gateway", "flusher", "cacher")  # the roles of an agent; its user may do what any of them may
ROLES = ("gateway", "flusher", "sequencer", "cacher", "compactor", "janitor", CONSOLE, AGENT, ADMIN, JOURNAL)
BUCKET_MAKER = "bucket"  # has a key, but no NATS user
KEYS = (*ROLES, BUCKET_MAKER)
SYSTEM_USER = "system"
USERS = (*ROLES, SYSTEM_USER)
ROUTE = "route"  # the user with which the nats-servers of a cluster connect to each other
ROUTE_PORT = 6222
SERVER = "nats"  # the certificate of the nats-servers
AUTHORITY = "ca"  # the certificate authority of NATS
KAFKA = "kafka"  # the certificate of the gateways' listeners
KAFKA_AUTHORITY = "kafka-ca"  # the certificate authority of these listeners
CLIENT = "client"  # the password of the administrator of Kafka, and the files of its clients
HTTP_TOKEN = "http"  # noqa: S105  the folder of the token for `/metrics`
TOKEN_KEY = "token-key"  # noqa: S105  the file with the secret key of delegation tokens, in the folders of all gateways

_NODE = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_HOST = re.compile(r"[A-Za-z0-9*][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a set of credentials; owners are user ids, and None is the user that runs the command."""

    roles: tuple[str, ...] = ROLES
    cluster: str = "default"
    # Services host many clusters: their users may use the subjects of all, and their keys the objects of all.
    hosts_clusters: bool = False
    bucket: str = "penstock"
    prefix: str = ""  # the path in the store's address
    nats_nodes: tuple[str, ...] = ("nats", "nats-2", "nats-3")
    owner: int | None = None
    s3_owner: int | None = None
    with_tls: bool = False  # also make a certificate authority, and certificates for the servers and users of NATS
    nats_hosts: tuple[str, ...] = ()  # more names and addresses in the servers' certificate
    kafka_hosts: tuple[str, ...] = ()  # names of the gateways' listeners; with them, there is an administrator
    with_http_token: bool = False  # also make a token for the HTTP address of all services
    rotate: tuple[str, ...] = ()  # users whose secrets are replaced
    # Let services of release 0.1 send commands on their one subject, while some of them still run (ADR 0036).
    with_old_services: bool = False

    def __post_init__(self) -> None:
        check_token("cluster", self.cluster)
        of_kafka = (KAFKA, KAFKA_AUTHORITY, CLIENT, TOKEN_KEY)
        known = (*USERS, BUCKET_MAKER, ROUTE, SERVER, AUTHORITY, *of_kafka, HTTP_TOKEN)
        for user in self.rotate:
            if user not in known:
                raise Invalid(f"there are no credentials of {user!r}, only of {', '.join(known)}")
        if not _BUCKET.fullmatch(self.bucket):
            raise Invalid(f"a bucket name is 3 to 63 lower-case letters, digits, '.' or '-': {self.bucket!r}")
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise Invalid(
                f"a path in a bucket is names of letters, digits, '_', '.' or '-', joined by '/': {self.prefix!r}"
            )
        for host in (*self.kafka_hosts, *self.nats_hosts):
            if not _HOST.fullmatch(host):
                raise Invalid(f"a host is a name or an address, with commas between several hosts: {host!r}")
        for node in self.nats_nodes:
            if not _NODE.fullmatch(node):
                raise Invalid(f"a nats node is HOST or HOST:PORT, with commas between several nodes: {node!r}")
