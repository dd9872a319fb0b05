"""The compose project with compose.secure.yaml and compose.certificates.yaml: every kind of login that it offers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.testkit.clusters.compose import Project, running_project
from tests.testkit.servers.certificates import Authority
from tests.testkit.servers.ports import free_port
from tests.testkit.servers.token_issuer import AUDIENCE, ISSUER, Issuer

FILES = ("compose.yaml", "compose.secure.yaml", "compose.certificates.yaml", "tests/compose/issuer.yaml")
READABLE = 0o644  # by the containers' user


class SecuredProject(NamedTuple):
    """The running project, with the files and addresses for logins of clients."""

    project: Project
    client: Path  # the folder with the copied files of the administrator
    certificates: str  # the address for clients with certificates
    authority: Authority  # of their certificates
    issuer: Issuer  # of the tokens


@contextlib.contextmanager
def secured_project(name: str, folder: Path) -> Iterator[SecuredProject]:
    """A started project that accepts all mechanisms, removed at the end; `folder` gets the files."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, issuer = Authority(folder / "clients"), Issuer()
    authority.certificate.chmod(READABLE)
    keys = folder / "keys.json"
    keys.write_bytes(issuer.key_set())
    keys.chmod(READABLE)
    port = free_port()
    settings = {
        "PENSTOCK_KAFKA_CERTIFICATE_PORT": str(port),
        "PENSTOCK_CLIENT_CA": str(authority.certificate),
        "PENSTOCK_TESTS_KEYS": str(keys),
        "PENSTOCK_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        "PENSTOCK_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": "file:///run/issuer/keys.json",
        "PENSTOCK_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
        "PENSTOCK_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
    }
    with running_project(name, *FILES, **settings) as project:
        client = folder / "client"
        project.compose("cp", "credentials:/credentials/client", str(client))
        yield SecuredProject(project, client, f"127.0.0.1:{port}", authority, issuer)
