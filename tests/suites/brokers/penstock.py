"""Three gateways of a `penstock up` as three brokers: the one of its agent, and two beside it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.identities.client_files import PASSWORD_FILE
from penstock.cli.ports import Address
from penstock.cli.up.secure import FOLDER, SecureFiles
from penstock.contracts.acls import WILDCARD
from tests.suites.brokers.shape import COUNT, PASSWORD, USER, Brokers, Shape, administrator
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, allow_everything, secured_gateway
from tests.testkit.loads.transaction_load import wait_for_transactions
from tests.testkit.servers.ports import free_port

PLAIN, LOGINS, SECURE = "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"  # the listeners


@contextlib.contextmanager
def penstock(folder: Path, shape: Shape) -> Iterator[Brokers]:
    """New gateways with access control. Without logins, every client may do all that no list denies."""
    arguments = ["--secure"] if shape.has_logins else []
    with (
        _settings(shape),
        running(folder / "data", *arguments) as cluster,
        contextlib.ExitStack() as stack,
    ):
        wait_for_transactions(cluster)
        names = [f"gateway-{number}" for number in range(2, COUNT + 1)]
        if shape.has_logins:
            files = _secure_files(cluster)
            secured = [stack.enter_context(_secured(cluster, name, files)) for name in names]
            login = administrator(cluster.kafka, files.folder / "ca.pem", files.password)
            yield Brokers((cluster.kafka, *(each.addresses[SECURE] for each in secured)), (), login)
            return
        allow_everything(cluster, f"User:{WILDCARD}", administers=True)
        add_user(cluster, USER, PASSWORD)
        others = [stack.enter_context(secured_gateway(cluster, name, PLAIN, LOGINS)) for name in names]
        plain = [each.addresses[PLAIN] for each in others]
        yield Brokers((cluster.kafka, *plain), tuple(each.addresses[LOGINS] for each in others), None)


def _secure_files(cluster: Cluster) -> SecureFiles:
    folder = cluster.data / FOLDER
    return SecureFiles(folder, (folder / PASSWORD_FILE).read_text().strip())


def _secured(cluster: Cluster, name: str, files: SecureFiles) -> contextlib.AbstractContextManager[SecuredGateway]:
    """A gateway with the settings that `penstock up --secure` gives its own."""
    settings = files.gateway_settings(Address("127.0.0.1", free_port()), None)
    given = {key.lower(): value for key, value in settings.items() if value and key != "LISTENERS"}
    return secured_gateway(cluster, name, SECURE, **given)


@contextlib.contextmanager
def _settings(shape: Shape) -> Iterator[None]:
    """Settings in the environment of the processes that start meanwhile."""
    settings = {
        "SHARE_GROUPS": "true",
        "AUTO_CREATE_TOPICS": str(shape.creates_topics).lower(),
        "DEFAULT_PARTITIONS": str(shape.partitions),
        "CONNECTIONS_MAX_REAUTH_MS": str(shape.reauthentication_ms),
        "AUTHORIZER": "on",
    }
    before = dict(os.environ)
    os.environ.update({f"PENSTOCK_{name}": value for name, value in settings.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
