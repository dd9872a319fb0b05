"""The price of TLS in a gateway: CPU per MiB beside plain text, and handshakes per second of CPU."""

import multiprocessing
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benches.report import Result
from benches.whole import TUNED, TUNED_MESSAGES, load
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.clusters.secured_gateway import SecuredGateway, secured_gateway
from tests.testkit.servers.certificates import Authority, tls_settings

# Beside plain text: AES-GCM runs at some 2 GB/s, and each byte is copied twice more.
ADDED_MS_PER_MIB_MAX = 2.0
HANDSHAKES_PER_CPU_S_MIN = 500
HANDSHAKES = 2_000
CLIENTS = 2
ROUNDS = 2
# No other gateway of the cluster has a listener of these names. So the brokers that clients learn are this one alone.
PLAIN, TLS = "PLAIN", "TLS"
PROTOCOLS = f"{PLAIN}:PLAINTEXT,{TLS}:SSL"
PRODUCE, CONSUME = "produce", "consume"


def costs(mib: int) -> Iterator[Result]:
    """The CPU of one gateway with both kinds of listeners, for the same load over each."""
    with tempfile.TemporaryDirectory() as name, running(Path(name) / "data") as cluster:
        authority = Authority(Path(name) / "ca")
        settings = tls_settings(authority.issue("server"), ssl_enabled_protocols="TLSv1.3")
        settings["listener_security_protocol_map"] = PROTOCOLS
        with secured_gateway(cluster, "secured", PLAIN, TLS, **settings) as gateway:
            yield from _bytes(cluster, gateway, authority, mib)
            yield _handshakes(gateway, authority)


def _bytes(cluster: Cluster, gateway: SecuredGateway, authority: Authority, mib: int) -> Iterator[Result]:
    tls = ("security.protocol=ssl", f"ssl.ca.location={authority.certificate}")
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    seen = AdminClient({"bootstrap.servers": gateway.addresses[PLAIN]}).list_topics(timeout=60).brokers
    assert len(seen) == 1, "clients would send their load to another gateway, too"
    found: dict[tuple[str, str], list[float]] = {}
    for attempt in range(ROUNDS + 1):  # the first one touches the memory
        for how, listener, settings in (("plain", PLAIN, ()), ("TLS 1.3", TLS, tls)):
            topic = f"{how[:3]}-{attempt}"
            admin.create_topics([NewTopic(topic, 16)])[topic].result(60)
            for kind in (PRODUCE, CONSUME):
                amount = ("--mib", str(mib)) if kind == PRODUCE else ()
                tuned = (*TUNED, *TUNED_MESSAGES) if kind == PRODUCE else ()
                before_s = gateway.cpu_s()
                done = load(gateway.addresses[listener], kind, topic, *amount, settings=(*tuned, *settings))
                cost = (gateway.cpu_s() - before_s) * 1000 / done["mib"]
                found.setdefault((kind, how), []).append(cost)
    for kind in (PRODUCE, CONSUME):
        plain, secure = min(found[kind, "plain"][1:]), min(found[kind, "TLS 1.3"][1:])
        yield Result("tls", f"{kind}, gateway CPU, plain text", plain, "ms/MiB")
        yield Result("tls", f"{kind}, gateway CPU, TLS 1.3", secure, "ms/MiB")
        yield Result("tls", f"{kind}, CPU that TLS adds", secure - plain, "ms/MiB", ADDED_MS_PER_MIB_MAX)


def _handshakes(gateway: SecuredGateway, authority: Authority) -> Result:
    """Whole handshakes, none resumed, with a P-256 certificate; the clients have their own processes."""
    each = HANDSHAKES // CLIENTS
    arguments = (gateway.addresses[TLS], str(authority.certificate), each)
    context = multiprocessing.get_context("spawn")
    before_s = gateway.cpu_s()
    clients = [context.Process(target=_connect_often, args=arguments) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        assert client.exitcode == 0
    rate = HANDSHAKES / (gateway.cpu_s() - before_s)
    return Result("tls", "handshakes per second of one core, P-256", rate, "/s", HANDSHAKES_PER_CPU_S_MIN, True)


def _connect_often(address: str, authority: str, count: int) -> None:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority)
    for _ in range(count):
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as client,
        ):
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")  # ApiVersions
            assert client.recv(4)
