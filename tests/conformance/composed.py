"""A cluster with logins in containers: the compose project with compose.secure.yaml and compose.certificates.yaml."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.conformance.logins import SCRAM_SHA_256, SCRAM_SHA_512, Login, read_settings
from tests.conformance.secured import (
    CALL_TIMEOUT_S,
    NAME_IN_CERTIFICATE,
    PASSWORD,
    SERVICE,
    SERVICE_SECRET,
    TIMEOUT_S,
    USER,
    Secured,
    client_certificate,
    logins_at,
)
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.secured_project import SecuredProject, secured_project
from tests.testkit.loads.ledger import QUIET
from tests.testkit.servers.certificates import Authority
from tests.testkit.servers.token_issuer import Issuer, serving, token_url

ITERATIONS = 4_096
SCRAMS = {SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256, SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512}


@contextlib.contextmanager
def composed_cluster(folder: Path) -> Iterator[Secured]:
    """Containers that allow the users of its logins everything, and all others nothing."""
    secrets = {SERVICE: SERVICE_SECRET}
    with (
        secured_project("penstock-conformance", folder) as started,
        serving(started.issuer, secrets) as keys,
        serving(Issuer(), secrets) as forged_keys,  # other keys with the same ids
    ):
        ca = str(started.client / "ca.pem")
        _add_users(started, ca)
        kafka = started.project.kafka

        def logins(tokens: str, authority: Authority, password: str) -> dict[str, Login]:
            certificate = client_certificate(authority)
            return logins_at(kafka, kafka, started.certificates, ca, token_url(tokens), certificate, password)

        right = logins(keys, started.authority, PASSWORD)
        wrong = logins(forged_keys, Authority(folder / "others"), "wrong")
        yield Secured(kafka, _administrator(started, ca), right, wrong)


def _administrator(started: SecuredProject, ca: str) -> Path:
    """The administrator's file for Kafka's tools, with the whole path of the authority's certificate."""
    path = started.client.with_name("administrator.properties")
    path.write_text((started.client / "client.properties").read_text().replace("=ca.pem", f"={ca}"))
    return path


def _add_users(started: SecuredProject, ca: str) -> None:
    """Return when the gateways know the users and their access control lists."""
    own = read_settings([str(started.client / "librdkafka.conf")])
    base: dict[str, Any] = {**QUIET, **own, "ssl.ca.location": ca, "bootstrap.servers": started.project.kafka}
    wait_until(lambda: _is_served(base), TIMEOUT_S, "the administrator to be known")
    admin = AdminClient(base)
    infos = [ScramCredentialInfo(each, ITERATIONS) for each in SCRAMS.values()]
    upsertions = [UserScramCredentialUpsertion(USER, info, PASSWORD.encode()) for info in infos]
    admin.alter_user_scram_credentials(upsertions)[USER].result(TIMEOUT_S)
    bindings = [
        _everything(kind, f"User:{user}")
        for user in (USER, SERVICE, NAME_IN_CERTIFICATE)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    for created in admin.create_acls(bindings).values():
        created.result(TIMEOUT_S)
    user = {"sasl.mechanism": SCRAM_SHA_512, "sasl.username": USER, "sasl.password": PASSWORD}
    wait_until(lambda: _is_served(base | user), TIMEOUT_S, "the user to be known")


def _everything(kind: ResourceType, principal: str) -> AclBinding:
    return AclBinding(kind, "*", ResourcePatternType.LITERAL, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW)


def _is_served(settings: dict[str, Any]) -> bool:
    with contextlib.suppress(KafkaException):
        AdminClient(settings).list_topics(timeout=CALL_TIMEOUT_S)
        return True
    return False
