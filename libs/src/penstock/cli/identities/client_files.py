"""The settings with which Kafka's clients log in as the administrator."""

import hashlib
from pathlib import Path

ADMINISTRATOR = "admin"
MECHANISM = "SCRAM-SHA-512"
PROPERTIES_FILE = "client.properties"  # of Kafka's own tools
LIBRDKAFKA_FILE = "librdkafka.conf"  # of clients on librdkafka, such as kcat -F
PASSWORD_FILE = "password"  # noqa: S105  the name of a file
SECRET_BYTES = 32


def java_properties(ca: Path, password: str) -> str:
    """The text of `client.properties`; `ca` is the path of the authority's certificate."""
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{ADMINISTRATOR}"'
    return f'{listener_properties(ca)}sasl.jaas.config={login} password="{password}";\n'


def listener_properties(ca: Path) -> str:
    """The settings of the listener, without a login."""
    return (
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={ca}\n"
    )


def librdkafka_settings(address: str, ca: Path, password: str) -> str:
    """The text of `librdkafka.conf`; without an address the caller names the server."""
    return (
        (f"bootstrap.servers={address}\n" if address else "") + "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM}\n"
        f"sasl.username={ADMINISTRATOR}\n"
        f"sasl.password={password}\n"
        f"ssl.ca.location={ca}\n"
    )


def login_secret(password: str) -> str:
    """The setting `sasl_login_secret`, the same at all gateways: the salts of unknown users look like real ones."""
    return hashlib.sha256(f"salts {password}".encode()).hexdigest()
