"""The console's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ADVANCED, Port, ServiceConfig


class ConsoleConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of one console process."""

    listen_host: Annotated[str, Meta(description="address on which the pages are served")] = "127.0.0.1"
    listen_port: Annotated[Port, Meta(description="port on which the pages are served; 0: any free port")] = 8081
    bootstrap: Annotated[str, Meta(description="Kafka listener of the cluster, HOST:PORT")] = "127.0.0.1:9092"
    command_config: Annotated[
        str,
        Meta(description="file of Kafka client settings; with a SASL protocol, users log in with their passwords"),
    ] = ""
    changes: Annotated[
        bool, Meta(description="let users change topics and groups and write records; otherwise the pages only show")
    ] = False
    secure_cookies: Annotated[
        bool, Meta(description="send login cookies over HTTPS only, for a console behind a proxy with TLS")
    ] = False
    host_names: Annotated[
        str,
        Meta(description="names of a console without logins in browsers, separated by commas; addresses also work"),
    ] = ""
    public_url: Annotated[
        str, Meta(description="address of the console in browsers, https://HOST; needed for logins at an issuer")
    ] = ""
    oidc_issuer: Annotated[
        str, Meta(description="issuer at which users log in by OpenID Connect, https://...; gateways accept its tokens")
    ] = ""
    oidc_client_id: Annotated[str, Meta(description="name of the console at the issuer")] = ""
    oidc_client_secret_file: Annotated[
        str, Meta(description="file whose first line is the secret of the console at the issuer; empty: it has none")
    ] = ""
    oidc_scope: Annotated[
        str, Meta(description="scope of a login at the issuer; some need one for the audience, or `offline_access`")
    ] = "openid"
    oidc_audience: Annotated[
        str, Meta(description="parameter `audience` of a login, for issuers that choose a token's audience by it")
    ] = ""
    oidc_user_claim: Annotated[
        str,
        Meta(description="field of a token that has the user's name, the same as at the gateways", extra=ADVANCED),
    ] = "sub"
    schema_registry: Annotated[
        str, Meta(description="address of a schema registry that decodes messages, https://USER@HOST:PORT; empty: none")
    ] = ""
    schema_registry_password_file: Annotated[
        str, Meta(description="file whose first line is the password at the schema registry")
    ] = ""
    schema_registry_ca: Annotated[
        str, Meta(description="file of certificates that sign that of the schema registry")
    ] = ""
    supervisor_url: Annotated[
        str, Meta(description="address of `penstock up`, which knows processes that are silent", extra=ADVANCED)
    ] = ""
    metrics_topics_max: Annotated[
        int, Meta(ge=0, description="most topics, and most pairs of group and topic, with metrics of their own")
    ] = 1_000
