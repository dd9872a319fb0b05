"""Clients: connections of gateways, subscriptions to metrics of clients, and the metrics that clients pushed."""

import math
from collections.abc import Iterator

import msgspec

from penstock.contracts.errors import PenstockError
from penstock_console.kafka.subscriptions import MetricsSubscription, read_subscriptions
from penstock_console.pages.context import ListQuery, Part, Request, Sources, part_of
from penstock_console.survey.processes import Process, Reading

GATEWAY = "gateway"
CONNECTIONS, CLOSED = "penstock_gateway_connections", "penstock_gateway_connections_closed_total"
PUSHED_PREFIX = "penstock_client_"
CLIENT_ID, INSTANCE_ID = "client_id", "client_instance_id"
_NO_ADDRESS = "GATEWAY:9092"


class GatewayRow(msgspec.Struct, frozen=True):
    """The connections of one gateway; None where its metrics do not have them."""

    gateway: str
    zone: str
    pool: str
    listeners: list[str]  # such as `PLAINTEXT 127.0.0.1:9092`
    connections: float | None
    closed: float | None  # connections that the gateway closed since its start


class ClientMetric(msgspec.Struct, frozen=True):
    """A metric that a client pushed, as its gateway shows it."""

    client_id: str
    instance_id: str
    metric: str
    value: float | None  # None if it is infinite
    gateway: str


class ClientsPage(msgspec.Struct, frozen=True):
    """Gateways with their connections, all subscriptions, and the pushed metrics that fit."""

    gateways: list[GatewayRow]
    subscriptions: list[MetricsSubscription]
    subscriptions_error: str  # why they cannot be read, "" if they can
    command: str  # makes a subscription
    instances: int  # clients with pushed metrics
    total: int  # pushed metrics
    list: Part[ClientMetric]


async def clients(sources: Sources, request: Request, query: ListQuery) -> ClientsPage:
    """Connections, subscriptions, and the pushed metrics whose client or name contains the text."""
    reading: Reading = await sources.processes.current()
    gateways = [each for each in reading.processes if each.presence.role == GATEWAY]
    try:
        subscriptions, error = await sources.kafka.call(request.login, read_subscriptions), ""
    except PenstockError as failure:
        subscriptions, error = [], str(failure)
    pushed = sorted(
        (metric for each in gateways for metric in _pushed(each)),
        key=lambda each: (each.client_id, each.instance_id, each.metric),
    )
    text = query.q.lower()
    found = [each for each in pushed if text in f"{each.client_id} {each.instance_id} {each.metric}".lower()]
    return ClientsPage(
        [_row(each) for each in gateways],
        subscriptions,
        error,
        _command(gateways),
        len({each.instance_id for each in pushed}),
        len(pushed),
        part_of(found, query, CLIENT_ID),
    )


def _pushed(gateway: Process) -> Iterator[ClientMetric]:
    for (name, labels), value in gateway.samples.items():
        if name.startswith(PUSHED_PREFIX):
            of = dict(labels)
            if INSTANCE_ID in of:
                shown = value if math.isfinite(value) else None
                yield ClientMetric(of.get(CLIENT_ID, ""), of[INSTANCE_ID], name, shown, gateway.presence.instance)


def _row(gateway: Process) -> GatewayRow:
    presence, connections = gateway.presence, _sum(gateway, CONNECTIONS)
    return GatewayRow(
        presence.instance,
        presence.zone,
        presence.pool,
        [f"{each.name} {each.host}:{each.port}" for each in presence.listeners],
        connections,
        None if connections is None else _sum(gateway, CLOSED) or 0.0,
    )


def _sum(process: Process, name: str) -> float | None:
    found = [value for (each, _), value in process.samples.items() if each == name]
    return sum(found) if found else None


def _command(gateways: list[Process]) -> str:
    """Kafka's command for a subscription of all clients to all metrics."""
    addresses = [f"{each.host}:{each.port}" for gateway in gateways for each in gateway.presence.listeners]
    address = addresses[0] if addresses else _NO_ADDRESS
    return (
        f"kafka-client-metrics.sh --bootstrap-server {address} --alter --name all-clients --metrics '*' "
        "--interval 60000"
    )
