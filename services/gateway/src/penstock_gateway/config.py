"""The gateway's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import ADVANCED, PoolConfig
from penstock.runtime.traces.opening import TracesRatio
from penstock_gateway.fetch.catch_up_throttle import RATE_MIN
from penstock_gateway.kafka.cluster_choice import listeners_by_login
from penstock_gateway.kafka.listener_config import parse_listeners
from penstock_gateway.kafka.served_clients import ServedClients, parse_served
from penstock_gateway.kafka.shared_limit import ProcessLimits
from penstock_gateway.security.audit_trail import NewAuditTopic
from penstock_gateway.security.authorizer import parse_mode, parse_super_users
from penstock_gateway.security.delegation.delegation_tokens import TokenSettings, check_token_settings
from penstock_gateway.security.listener_security import ListenerSecurity, TlsSettings, listener_securities
from penstock_gateway.security.login.login_setup import LoginSettings, OAuthSettings, check_login_settings
from penstock_gateway.topic_bytes import TOPICS_MAX

MIB = 1024 * 1024


class GatewayConfig(PoolConfig, frozen=True, kw_only=True):
    """Settings of one gateway process."""

    listeners: Annotated[
        str,
        Meta(description="addresses for Kafka clients: NAME://host:port, separated by commas; port 0: any free port"),
    ] = "PLAINTEXT://127.0.0.1:9092"
    advertised_listeners: Annotated[
        str,
        Meta(
            description="addresses that clients of a listener get instead of its own: NAME://host:port, "
            "separated by commas"
        ),
    ] = ""
    listener_security_protocol_map: Annotated[
        str,
        Meta(
            description="protocol of each listener: NAME:PROTOCOL, separated by commas; the protocols are PLAINTEXT, "
            "SSL, SASL_PLAINTEXT and SASL_SSL; empty: a listener's name is its protocol, other names are plain text"
        ),
    ] = ""
    listener_settings: Annotated[
        str,
        Meta(
            description="`ssl_` settings of single listeners: NAME.setting=value, separated by semicolons, "
            "such as EXTERNAL.ssl_client_auth=required"
        ),
    ] = ""
    ssl_keystore_certificate_chain: Annotated[
        str, Meta(description="PEM file with the certificate of listeners with TLS, and its chain")
    ] = ""
    ssl_keystore_key: Annotated[str, Meta(description="PEM file with the certificate's private key")] = ""
    ssl_truststore_certificates: Annotated[
        str, Meta(description="PEM file with the authorities that sign client certificates")
    ] = ""
    ssl_client_auth: Annotated[
        str,
        Meta(
            description="certificates of clients: none, requested or required; a listener with SASL takes this "
            "from listener_settings only"
        ),
    ] = "none"
    ssl_enabled_protocols: Annotated[str, Meta(description="versions of TLS, separated by commas")] = "TLSv1.2,TLSv1.3"
    ssl_principal_mapping_rules: Annotated[
        str,
        Meta(
            description="rules that make a user from the name in a client certificate: "
            "RULE:pattern/replacement/[LU] or DEFAULT, separated by commas"
        ),
    ] = "DEFAULT"
    listener_clusters: Annotated[
        str,
        Meta(
            description="cluster of a listener: NAME=cluster, separated by commas; NAME=login: the user `tenant/user` "
            "of a login chooses it. On other listeners the server name of TLS chooses the cluster"
        ),
    ] = ""
    auto_create_topics: Annotated[bool, Meta(description="create a topic when a client first asks for it")] = True
    default_partitions: Annotated[int, Meta(ge=1, description="partitions of a topic created without a number")] = 1
    share_groups: Annotated[bool, Meta(description="allow share groups (KIP-932)")] = True
    served_clients: Annotated[
        str,
        Meta(
            description="all; producers: reads are refused; consumers: produce requests are refused, "
            "and the pool needs no flusher unless `audit` is on"
        ),
    ] = ServedClients.ALL.value
    connections_max: Annotated[int, Meta(ge=1, description="Kafka connections at the same time")] = 10_000
    idle_timeout_ms: Annotated[
        int, Meta(ge=1, description="a connection without requests closes after this time", extra=ADVANCED)
    ] = 600_000
    frame_bytes_max: Annotated[int, Meta(ge=1024, description="size of the largest request", extra=ADVANCED)] = (
        100 * MIB
    )
    held_bytes_max: Annotated[
        int,
        Meta(
            ge=MIB,
            description="bytes received and not answered, over all connections; above it the gateway stops reading",
        ),
    ] = 256 * MIB
    unsent_bytes_max: Annotated[
        int,
        Meta(
            ge=MIB,
            description="bytes of answers that clients did not take yet; above it fetches stop reading, "
            "catch-up fetches at half",
        ),
    ] = 128 * MIB
    history_bytes_per_second: Annotated[
        int,
        Meta(
            ge=0,
            description="rate of all catch-up reads while other consumers tail; "
            "0: chosen from the age of new data when it arrives",
            extra=ADVANCED,
        ),
    ] = 0
    requests_in_flight_max: Annotated[
        int,
        Meta(
            ge=1,
            description="requests of one connection in work at the same time; above it the gateway stops reading",
            extra=ADVANCED,
        ),
    ] = 128

    authorizer: Annotated[
        str,
        Meta(
            description="off: every client may do everything; shadow: the same, but report all that access control "
            "lists do not allow; on: deny it"
        ),
    ] = "off"
    super_users: Annotated[
        str,
        Meta(description="principals that no list restricts: User:NAME, separated by semicolons"),
    ] = ""
    audit: Annotated[
        str,
        Meta(
            description="on: logins, denials and changes by administrators are records of the topic __penstock_audit; "
            "off: they are in logs only"
        ),
    ] = "off"
    audit_partitions: Annotated[
        int, Meta(ge=1, description="partitions of the audit topic, when a gateway makes it", extra=ADVANCED)
    ] = NewAuditTopic().partitions
    audit_retention_ms: Annotated[
        int, Meta(ge=-1, description="retention.ms of the audit topic, when a gateway makes it; -1: no limit")
    ] = NewAuditTopic().retention_ms
    sasl_enabled_mechanisms: Annotated[
        str,
        Meta(
            description="mechanisms of logins, separated by commas: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER; "
            "PLAIN only on listeners with TLS"
        ),
    ] = LoginSettings().enabled_mechanisms
    sasl_plain_without_tls: Annotated[
        bool,
        Meta(
            description="offer PLAIN also on listeners without TLS: passwords cross the network in plain text",
            extra=ADVANCED,
        ),
    ] = False
    sasl_login_secret: Annotated[
        str,
        Meta(
            description="the same secret at all gateways, from which the salts of unknown users are made; "
            "empty: each gateway makes its own"
        ),
    ] = ""
    sasl_oauthbearer_jwks_endpoint_url: Annotated[
        str, Meta(description="keys of the issuer of tokens (OAUTHBEARER): https://... or file:///path")
    ] = ""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Annotated[
        int, Meta(ge=1_000, description="interval at which the keys of the issuer are loaded again", extra=ADVANCED)
    ] = OAuthSettings().jwks_endpoint_refresh_ms
    sasl_oauthbearer_expected_issuer: Annotated[str, Meta(description="issuer that tokens must have (`iss`)")] = ""
    sasl_oauthbearer_expected_audience: Annotated[
        str, Meta(description="audiences, separated by commas, of which tokens must have one (`aud`)")
    ] = ""
    sasl_oauthbearer_clock_skew_seconds: Annotated[
        int, Meta(ge=0, le=600, description="allowed difference to the clock of the issuer", extra=ADVANCED)
    ] = OAuthSettings().clock_skew_seconds
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, Meta(description="field of a token that has the user's name", extra=ADVANCED)
    ] = OAuthSettings().sub_claim_name
    sasl_oauthbearer_algorithms: Annotated[
        str, Meta(description="accepted algorithms of the signatures of tokens, separated by commas", extra=ADVANCED)
    ] = OAuthSettings().algorithms
    delegation_token_secret_key: Annotated[
        str,
        Meta(
            description="the same secret at all gateways, from which the passwords of delegation tokens are made; "
            "empty, and no file: there are no tokens"
        ),
    ] = ""
    delegation_token_secret_key_file: Annotated[
        str,
        Meta(
            description="file with such secrets, one in each line: the first makes new tokens, "
            "tokens of the others stay valid"
        ),
    ] = ""
    delegation_token_expiry_time_ms: Annotated[
        int, Meta(ge=1, description="time after which a delegation token ends, unless it is renewed")
    ] = TokenSettings().expiry_time_ms
    delegation_token_max_lifetime_ms: Annotated[
        int, Meta(ge=1, description="time after which a delegation token ends in any case")
    ] = TokenSettings().max_lifetime_ms
    connections_max_reauth_ms: Annotated[
        int, Meta(ge=0, description="time after which clients must log in again (KIP-368); 0: never")
    ] = 0
    metrics_topics_max: Annotated[
        int, Meta(ge=0, description="topics with metrics of their bytes; all others are one series; 0: off")
    ] = TOPICS_MAX
    traces_ratio: TracesRatio = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_mode(self.authorizer)
        parse_super_users(self.super_users)
        parse_served(self.served_clients)
        if self.audit not in ("off", "on"):
            raise Invalid(f"audit must be off or on: {self.audit!r}")
        check_login_settings(self.logins(), self.login_listeners(), self.tenant_listeners())
        check_token_settings(self.tokens())
        if 0 < self.history_bytes_per_second < RATE_MIN:
            raise Invalid(f"history_bytes_per_second must be 0 or at least {RATE_MIN}: {self.history_bytes_per_second}")

    def process_limits(self) -> ProcessLimits:
        """The limits of a process, which several clusters may share."""
        return ProcessLimits(
            connections=self.connections_max, held_bytes=self.held_bytes_max, unsent_bytes=self.unsent_bytes_max
        )

    @property
    def needs_flusher(self) -> bool:
        """Whether the gateway must have a live flusher to be ready."""
        return parse_served(self.served_clients) is not ServedClients.CONSUMERS or self.audit == "on"

    def listener_securities(self) -> dict[str, ListenerSecurity]:
        """The security of each listener, by name; `Invalid` if the settings of listeners are wrong."""
        specs = parse_listeners(self.listeners, self.advertised_listeners)
        tls = TlsSettings(**{name: getattr(self, name) for name in TlsSettings.__struct_fields__})
        return listener_securities(
            [spec.name for spec in specs], self.listener_security_protocol_map, tls, self.listener_settings
        )

    def login_listeners(self) -> dict[str, bool]:
        """The listeners that demand a login, and whether each has TLS."""
        protocols = {name: security.protocol for name, security in self.listener_securities().items()}
        return {name: protocol.has_tls for name, protocol in protocols.items() if protocol.has_login}

    def tenant_listeners(self) -> list[str]:
        """The listeners where the tenant of a login chooses the cluster."""
        specs = parse_listeners(self.listeners, self.advertised_listeners)
        return listeners_by_login(self.listener_clusters, [spec.name for spec in specs])

    def tokens(self) -> TokenSettings:
        """The settings of delegation tokens."""
        return TokenSettings(
            secret_key=self.delegation_token_secret_key,
            secret_key_file=self.delegation_token_secret_key_file,
            max_lifetime_ms=self.delegation_token_max_lifetime_ms,
            expiry_time_ms=self.delegation_token_expiry_time_ms,
        )

    def logins(self) -> LoginSettings:
        """The settings of logins."""
        return LoginSettings(
            enabled_mechanisms=self.sasl_enabled_mechanisms,
            plain_without_tls=self.sasl_plain_without_tls,
            login_secret=self.sasl_login_secret,
            connections_max_reauth_ms=self.connections_max_reauth_ms,
            oauth=OAuthSettings(
                jwks_endpoint_url=self.sasl_oauthbearer_jwks_endpoint_url,
                jwks_endpoint_refresh_ms=self.sasl_oauthbearer_jwks_endpoint_refresh_ms,
                expected_issuer=self.sasl_oauthbearer_expected_issuer,
                expected_audience=self.sasl_oauthbearer_expected_audience,
                clock_skew_seconds=self.sasl_oauthbearer_clock_skew_seconds,
                sub_claim_name=self.sasl_oauthbearer_sub_claim_name,
                algorithms=self.sasl_oauthbearer_algorithms,
            ),
        )
