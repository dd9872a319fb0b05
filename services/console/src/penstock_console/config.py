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
