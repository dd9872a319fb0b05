"""Three brokers of Apache Kafka of the pinned version, each also a controller."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.conformance.access.brokers import PRINCIPALS
from tests.conformance.provision import JAVA_JAR, class_path, compiled, program, run
from tests.suites.brokers.shape import COUNT, PASSWORD, USER, Brokers, Shape, administrator
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.certificates import Authority
from tests.testkit.servers.ports import free_port

START_TIMEOUT_S = 180.0
CLUSTER = "AAAAAAAAQACAAAAAAAAAEA"
# Three share the machine with the clients.
JAVA_OPTIONS = ["-Xmx768m", "-XX:+UseG1GC", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"]
# A client may do all that no list denies, as in the clusters that these suites are written for.
PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=CLIENT://{client},LOGIN://{login},ADMIN://{admin},CONTROLLER://{controller}
inter.broker.listener.name=ADMIN
controller.listener.names=CONTROLLER
listener.security.protocol.map=CLIENT:{protocol},LOGIN:SASL_PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.login.scram-sha-256.sasl.jaas.config={jaas}
listener.name.login.scram-sha-512.sasl.jaas.config={jaas}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:root;User:{user}
principal.builder.class=ListenerPrincipals
log.dirs={data}
auto.create.topics.enable={creates}
num.partitions={partitions}
connections.max.reauth.ms={reauthentication}
default.replication.factor=3
offsets.topic.replication.factor=3
offsets.topic.num.partitions=9
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=9
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
share.coordinator.state.topic.num.partitions=9
log.segment.delete.delay.ms=1000
"""
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
TLS = """
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.client.scram-sha-256.sasl.jaas.config={jaas}
listener.name.client.scram-sha-512.sasl.jaas.config={jaas}
"""
LISTENERS = ("client", "login", "admin", "controller")


@contextlib.contextmanager
def apache(folder: Path, shape: Shape) -> Iterator[Brokers]:
    """New brokers, killed at the end."""
    principals = compiled("listener-principals-jar", PRINCIPALS) / JAVA_JAR
    java = [program("java"), *JAVA_OPTIONS, "-cp", class_path(principals)]
    listeners = [{name: f"127.0.0.1:{free_port()}" for name in LISTENERS} for _ in range(COUNT)]
    folder.mkdir(parents=True)
    tls = _tls(folder) if shape.has_logins else ""
    with contextlib.ExitStack() as stack:
        for node in range(1, COUNT + 1):
            settings = folder / f"broker-{node}.properties"
            settings.write_text(_properties(folder, shape, node, listeners) + tls)
            scram = [part for each in (256, 512) for part in ("-S", _credential(each))]
            storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
            run([*java, *storage, *scram], folder)
            stack.enter_context(_broker([*java, "kafka.Kafka", str(settings)], settings.with_suffix(".log")))
        for own in listeners:
            wait_until(lambda address=own["client"]: _listens(address), START_TIMEOUT_S, "Kafka to listen")
        addresses = tuple(each["client"] for each in listeners)
        login = administrator(addresses[0], folder / "tls" / "ca.pem") if shape.has_logins else None
        yield Brokers(addresses, tuple(each["login"] for each in listeners), login)


def _properties(folder: Path, shape: Shape, node: int, listeners: Sequence[Mapping[str, str]]) -> str:
    return PROPERTIES.format(
        node=node,
        voters=",".join(f"{number}@{each['controller']}" for number, each in enumerate(listeners, 1)),
        **listeners[node - 1],
        jaas=JAAS,
        protocol="SASL_SSL" if shape.has_logins else "PLAINTEXT",
        user=USER,
        data=folder / f"data-{node}",
        creates=str(shape.creates_topics).lower(),
        partitions=shape.partitions,
        reauthentication=shape.reauthentication_ms,
    )


def _credential(bits: int) -> str:
    return f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]"


def _tls(folder: Path) -> str:
    """The settings of TLS, with a new certificate."""
    authority = Authority(folder / "tls")
    pair = authority.issue("server")
    both = folder / "tls" / "both.pem"
    both.write_text(pair.key.read_text() + pair.certificate.read_text())
    return TLS.format(keystore=both, ca=authority.certificate, jaas=JAAS)


@contextlib.contextmanager
def _broker(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent)
    try:
        yield
    finally:
        process.kill()  # its data is not needed again
        process.wait()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
