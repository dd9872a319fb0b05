"""The gateway's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import ServiceConfig
from penstock_gateway.fetch.catch_up_throttle import RATE_MIN
from penstock_gateway.kafka.listener_config import parse_listeners

MIB = 1024 * 1024


class GatewayConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of one gateway process."""

    listeners: Annotated[
        str, Meta(description="where to accept Kafka clients: NAME://host:port, separated by commas; port 0: any")
    ] = "PLAINTEXT://127.0.0.1:9092"
    advertised_listeners: Annotated[
        str, Meta(description="what clients of a listener are told instead: NAME://host:port, separated by commas")
    ] = ""
    auto_create_topics: Annotated[bool, Meta(description="make a topic when a client first asks for it")] = True
    default_partitions: Annotated[int, Meta(ge=1, description="partitions of topics made without a number")] = 1
    share_groups: Annotated[bool, Meta(description="whether clients may use share groups (KIP-932)")] = False
    connections_max: Annotated[int, Meta(ge=1, description="Kafka connections at once")] = 10_000
    idle_timeout_ms: Annotated[int, Meta(ge=1, description="a connection without requests is closed after this")] = (
        600_000
    )
    frame_bytes_max: Annotated[int, Meta(ge=1024, description="the largest request")] = 100 * MIB
    held_bytes_max: Annotated[
        int, Meta(ge=MIB, description="bytes received and not answered, of all connections, before reading stops")
    ] = 256 * MIB
    unsent_bytes_max: Annotated[
        int, Meta(ge=MIB, description="bytes of answers that clients have not taken, before fetches read no more")
    ] = 128 * MIB
    history_bytes_per_second: Annotated[
        int,
        Meta(
            ge=0,
            description="what all who read history get while others follow the end of the log; "
            "0 chooses by how old news is when it comes",
        ),
    ] = 0
    requests_in_flight_max: Annotated[
        int, Meta(ge=1, description="requests of one connection that are worked on before reading stops")
    ] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_listeners(self.listeners, self.advertised_listeners)
        if 0 < self.history_bytes_per_second < RATE_MIN:
            raise Invalid(f"history bytes per second must be 0 or at least {RATE_MIN}: {self.history_bytes_per_second}")
