"""A cluster with logins: `penstock up --secure`, and a gateway for the mechanisms that this does not offer."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.conformance.logins import CERTIFICATE, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, Login
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, allow_everything, secured_gateway
from tests.testkit.loads.ledger import QUIET
from tests.testkit.servers.certificates import CLIENT, Authority
from tests.testkit.servers.token_issuer import AUDIENCE, ISSUER, Issuer, serving, token_url

USER, PASSWORD = "alice", "alice-secret"
SERVICE, SERVICE_SECRET = "service-7", "service-secret"
TOKEN_KEY = "the secret key of all delegation tokens of this run"
NAME_IN_CERTIFICATE = "CN=laptop,O=Example"
TIMEOUT_S = 180.0
CALL_TIMEOUT_S = 10.0
# Not the name of the listener of `penstock up --secure`: a client is sent only to listeners with the name of its own.
SASL_LISTENER, TLS_LISTENER = "LOGINS", "CERTIFICATES"


class Secured(NamedTuple):
    """A cluster, and a right and a wrong login of each mechanism."""

    address: str  # for logins by SCRAM
    administrator: Path  # its client.properties
    right: Mapping[str, Login]
    wrong: Mapping[str, Login]

    def login(self, user: str, password: str) -> Login:
        """The login of another user by SCRAM."""
        return self.right[SCRAM_SHA_256]._replace(user=user, password=password)


@contextlib.contextmanager
def secured_cluster(folder: Path) -> Iterator[Secured]:
    """A cluster whose gateways allow the users of its logins everything, and all others nothing."""
    secrets = {SERVICE: SERVICE_SECRET}
    authority, other = Authority(folder / "clients"), Authority(folder / "others")
    with (
        running(folder / "data", "--secure") as cluster,
        serving(Issuer(), secrets) as keys,
        serving(Issuer(), secrets) as forged_keys,  # other keys with the same ids
    ):
        secure = cluster.data / "secure"
        _add_users(cluster, secure)
        with _gateway(cluster, secure, keys, authority) as gateway:
            sasl, tls = gateway.addresses[SASL_LISTENER], gateway.addresses[TLS_LISTENER]
            ca = str(secure / "ca.pem")
            right = logins_at(cluster.kafka, sasl, tls, ca, token_url(keys), client_certificate(authority))
            wrong = logins_at(cluster.kafka, sasl, tls, ca, token_url(forged_keys), client_certificate(other), "wrong")
            yield Secured(cluster.kafka, secure / "client.properties", right, wrong)


def _add_users(cluster: Cluster, secure: Path) -> None:
    """Return when the gateway knows them and their access control lists."""
    allow_everything(cluster, *(f"User:{name}" for name in (USER, SERVICE, NAME_IN_CERTIFICATE)))
    add_user(cluster, USER, PASSWORD)
    admin = AdminClient(
        {
            **QUIET,
            "bootstrap.servers": cluster.kafka,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secure / "ca.pem"),
            "sasl.mechanism": SCRAM_SHA_256,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )

    def is_known() -> bool:
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=CALL_TIMEOUT_S)
            return True
        return False

    wait_until(is_known, TIMEOUT_S, "the gateway to know a new user")


def _gateway(
    cluster: Cluster, secure: Path, keys: str, authority: Authority
) -> contextlib.AbstractContextManager[SecuredGateway]:
    token_keys = cluster.data / "token-keys"
    token_keys.write_text(f"{TOKEN_KEY}\n")
    return secured_gateway(
        cluster,
        "mechanisms",
        SASL_LISTENER,
        TLS_LISTENER,
        listener_security_protocol_map=f"{SASL_LISTENER}:SASL_SSL,{TLS_LISTENER}:SSL",
        listener_settings=f"{TLS_LISTENER}.ssl_client_auth=required",
        ssl_keystore_certificate_chain=str(secure / "server.pem"),
        ssl_keystore_key=str(secure / "server-key.pem"),
        ssl_truststore_certificates=str(authority.certificate),
        sasl_enabled_mechanisms=f"{SCRAM_SHA_512},{PLAIN},{OAUTHBEARER}",
        delegation_token_secret_key_file=str(token_keys),
        sasl_oauthbearer_jwks_endpoint_url=keys,
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=AUDIENCE,
        authorizer="on",
        super_users="User:admin",
    )


def logins_at(
    scram: str, sasl: str, tls: str, ca: str, tokens: str, certificate: Path, password: str = PASSWORD
) -> dict[str, Login]:
    """A login of each mechanism: of SCRAM, of the others of SASL, and of certificates at these addresses."""
    with_password = Login(scram, SCRAM_SHA_256, ca, USER, password)
    logins = [
        with_password,
        with_password._replace(mechanism=SCRAM_SHA_512),
        with_password._replace(mechanism=PLAIN, address=sasl),
        Login(sasl, OAUTHBEARER, ca, SERVICE, SERVICE_SECRET, token_url=tokens),
        Login(tls, CERTIFICATE, ca, certificate=str(certificate)),
    ]
    return {each.mechanism: each for each in logins}


def client_certificate(authority: Authority) -> Path:
    """A file with a key and a certificate of a client, as Kafka's PEM key stores are."""
    pair = authority.issue("client", NAME_IN_CERTIFICATE, usage=CLIENT)
    both = pair.key.with_name("both.pem")
    both.write_text(pair.key.read_text() + pair.certificate.read_text())
    return both
