"""Sends the same requests about delegation tokens to Apache Kafka and to Penstock, and prints each difference.

`python -m tests.conformance.access.tokens` exits with 1 if there is one. Both brokers demand a login, have the same
secret key and the same users. Times are compared as differences to the present, in seconds.
"""

import base64
import contextlib
import hashlib
import hmac
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.levels import TOKENS_LEVEL
from penstock.kafkawire.api import (
    create_acls,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.conformance.access.brokers import ANSWER_TIMEOUT_S, START_TIMEOUT_S, Connection
from tests.conformance.provision import JAVA_OPTIONS, jars, program, run
from tests.testkit.clusters.cluster import running, wait_for_level, wait_until
from tests.testkit.clusters.secured_gateway import add_user, secured_gateway
from tests.testkit.servers.ports import free_port

SECRET = "the secret key of both compared brokers"
PASSWORD = "password-of-all-users"
USERS = ("root", "alice", "bob", "service")
HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
CREATE, RENEW = create_delegation_token.API.key, renew_delegation_token.API.key
EXPIRE, DESCRIBE = expire_delegation_token.API.key, describe_delegation_token.API.key
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=SASL_PLAINTEXT://127.0.0.1:{client},PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:root;User:ANONYMOUS
{secret}
log.dirs={data}
offsets.topic.replication.factor=1
"""

Addresses = dict[str, str]  # by listener


class User(Connection):
    """A connection after a login with SCRAM, as a user or with a token."""

    def __init__(self, address: str, name: str, password: str, *, extensions: str = "") -> None:
        super().__init__(address)
        self.ask(sasl_handshake.API.key, 1, sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-512"))
        bare = f"n={name},r=nonce-of-a-test{extensions}"
        first = self._answer(f"n,,{bare}")
        self.lifetime_ms = 0
        if self.error:
            return
        parts = dict(part.split("=", 1) for part in first.split(","))
        salted = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(salted, b"Client Key", "sha512")
        unproven = f"c=biws,r={parts['r']}"
        signed = f"{bare},{first},{unproven}".encode()
        signature = hmac.digest(hashlib.sha512(key).digest(), signed, "sha512")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._answer(f"{unproven},p={base64.b64encode(proof).decode()}")

    def _answer(self, message: str) -> str:
        asked = sasl_authenticate.SaslAuthenticateRequest(message.encode())
        answer = self.ask(sasl_authenticate.API.key, 2, asked)
        self.error, self.lifetime_ms = answer.error_code, answer.session_lifetime_ms
        return bytes(answer.auth_bytes).decode()


@contextlib.contextmanager
def kafka(folder: Path, secret: str) -> Iterator[Addresses]:
    """An Apache Kafka of the pinned version with these users."""
    class_path = ":".join(map(str, sorted(jars().glob("*.jar"))))
    java = [program("java"), *JAVA_OPTIONS, "-cp", class_path]
    ports = {"client": free_port(), "plain": free_port(), "controller": free_port()}
    settings = folder / "server.properties"
    key = f"delegation.token.secret.key={secret}" if secret else ""
    settings.write_text(PROPERTIES.format(**ports, data=folder / "data", secret=key))
    users = [
        part
        for name in USERS
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for part in ("--add-scram", f"{mechanism}=[name={name},password={PASSWORD}]")
    ]
    form = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAEA", "-c", str(settings)]
    run([*java, *form, *users], folder)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=output, stderr=output)
    try:
        found = {"SASL_PLAINTEXT": f"127.0.0.1:{ports['client']}", "PLAINTEXT": f"127.0.0.1:{ports['plain']}"}
        wait_until(lambda: _serves(found["SASL_PLAINTEXT"]), START_TIMEOUT_S, "Kafka to serve its users")
        yield found
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


@contextlib.contextmanager
def penstock(folder: Path, secret: str) -> Iterator[Addresses]:
    """A Penstock with these users: a gateway beside a cluster."""
    with running(folder / "data", "--flush-ms", "20") as cluster:
        wait_for_level(cluster, TOKENS_LEVEL)
        for name in USERS:
            add_user(cluster, name, PASSWORD)
        settings: dict[str, str] = {"authorizer": "on", "super_users": "User:root;User:ANONYMOUS"}
        if secret:
            path = cluster.data / "token-keys"
            path.write_text(f"{secret}\n")
            settings["delegation_token_secret_key_file"] = str(path)
        with secured_gateway(cluster, "tokens", "SASL_PLAINTEXT", "PLAINTEXT", **settings) as gateway:
            wait_until(lambda: _serves(gateway.addresses["SASL_PLAINTEXT"]), START_TIMEOUT_S, "a login")
            yield gateway.addresses


def _serves(address: str) -> bool:
    with contextlib.suppress(OSError):
        user = User(address, "alice", PASSWORD)
        user.close()
        return user.error == 0
    return False


class Requests:
    """The requests to one broker, and their results by name."""

    def __init__(self, addresses: Addresses) -> None:
        address = addresses["SASL_PLAINTEXT"]
        self.users: dict[str, Connection] = {name: User(address, name, PASSWORD) for name in USERS}
        self.users["plain"] = Connection(addresses["PLAINTEXT"])
        self._address = address
        self.results: dict[str, Any] = {}

    def create(self, label: str, user: str, version: int = 3, **fields: Any) -> bytes:
        """Create a token, and return its password."""
        fields = {"owner_principal_name": None, "owner_principal_type": None, "max_lifetime_ms": -1, **fields}
        found = self.users[user].ask(CREATE, version, create_delegation_token.CreateDelegationTokenRequest(**fields))
        times = (found.issue_timestamp_ms, found.expiry_timestamp_ms, found.max_timestamp_ms)
        people = (found.principal_type, found.principal_name)
        people += (found.token_requester_principal_type, found.token_requester_principal_name)
        made = (len(found.token_id), len(found.hmac))
        self.results[label] = (_name(found.error_code), *people, *map(_in_seconds, times), *made)
        if found.hmac:
            expected = hmac.digest(SECRET.encode(), found.token_id.encode(), "sha512")
            assert bytes(found.hmac) == expected, "the password is the HMAC of the id"
            self._token_id = found.token_id
            _wait(lambda: self._is_described(found.token_id))
        return bytes(found.hmac)

    def renew(self, label: str, user: str, token_hmac: bytes, period_ms: int) -> None:
        asked = renew_delegation_token.RenewDelegationTokenRequest(token_hmac, period_ms)
        self._changed(label, self.users[user].ask(RENEW, 2, asked))

    def expire(self, label: str, user: str, token_hmac: bytes, period_ms: int) -> None:
        asked = expire_delegation_token.ExpireDelegationTokenRequest(token_hmac, period_ms)
        self._changed(label, self.users[user].ask(EXPIRE, 2, asked))

    def describe(self, label: str, user: str, *owners: str, version: int = 3) -> None:
        named = [describe_delegation_token.DescribeDelegationTokenOwner("User", each) for each in owners] or None
        found = self.users[user].ask(DESCRIBE, version, describe_delegation_token.DescribeDelegationTokenRequest(named))
        tokens = sorted(
            (each.principal_name, each.token_requester_principal_name, [one.principal_name for one in each.renewers])
            for each in found.tokens
        )
        self.results[label] = (_name(found.error_code), tokens)

    def log_in(self, label: str, token_id: str, token_hmac: bytes, extensions: str = ",tokenauth=true") -> Connection:
        """Log in with a token; the user "token" is this connection from now on."""
        user = User(self._address, token_id, base64.b64encode(token_hmac).decode(), extensions=extensions)
        self.results[label] = (_name(user.error), round(user.lifetime_ms / 60_000))
        self.users["token"] = user
        return user

    @property
    def token_id(self) -> str:
        """The id of the newest token."""
        return self._token_id

    def allow(self, operation: AclOperation, kind: ResourceType, name: str) -> None:
        """Allow an operation to the service, and return when the broker knows it."""
        each = AclBinding(kind, name, PatternType.LITERAL, "User:service", "*", operation, AclPermission.ALLOW)
        fields = (each.resource_type, name, each.pattern_type, each.principal, "*", operation, each.permission)
        asked = create_acls.CreateAclsRequest([create_acls.AclCreation(*fields)])
        (result,) = self.users["root"].ask(create_acls.API.key, 3, asked).results
        assert result.error_code == 0, result

    def _is_described(self, token_id: str) -> bool:
        asked = describe_delegation_token.DescribeDelegationTokenRequest(None)
        return any(each.token_id == token_id for each in self.users["root"].ask(DESCRIBE, 3, asked).tokens)

    def _changed(self, label: str, found: Any) -> None:
        self.results[label] = (_name(found.error_code), _in_seconds(found.expiry_timestamp_ms))


def _name(code: int) -> str:
    return ErrorCode(code).name


def _in_seconds(ms: int) -> int:
    """A time as the difference to now, in tens of seconds; small numbers are no times."""
    return ms if abs(ms) < DAY_MS else round((ms / 1000 - time.time()) / 10) * 10


def _wait(condition: Any) -> None:
    wait_until(condition, ANSWER_TIMEOUT_S, "the broker to know a change")


def ask_all(addresses: Addresses) -> dict[str, Any]:
    """The results of all requests to a broker with a secret key."""
    ask = Requests(addresses)
    renewers = [create_delegation_token.CreatableRenewers("User", "bob")]
    other = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    own = ask.create("create", "alice", renewers=renewers)
    own_id = ask.token_id
    ask.create("create, version 1", "bob", version=1)
    ask.create("create with a maximum", "alice", max_lifetime_ms=HOUR_MS)
    ask.create("create with the maximum 0", "bob", max_lifetime_ms=0)
    ask.create("create over plain text", "plain")
    ask.create("create with a renewer of another type", "alice", renewers=[_renewer("Group", "bob")])
    ask.create("create for another owner, without the right", "service", **other)
    ask.allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice")
    _wait(lambda: ask.create("create for another owner", "service", **other))
    for user in ("alice", "bob", "service", "root", "plain"):
        ask.describe(f"describe as {user}", user)
    ask.describe("describe the tokens of alice as bob", "bob", "alice")
    ask.describe("describe the tokens of bob as root", "root", "bob", version=2)
    ask.allow(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
    _wait(lambda: _sees(ask, "service", "bob"))
    ask.describe("describe with the right on an owner", "service")
    for user in ("alice", "bob", "service", "root", "plain"):
        ask.renew(f"renew as {user}", user, own, HOUR_MS)
    ask.renew("renew for ever", "alice", own, 100 * DAY_MS)
    ask.renew("renew by the default", "alice", own, -1)
    ask.renew("renew for no time", "alice", own, 0)
    ask.renew("renew an unknown token", "alice", b"unknown", HOUR_MS)
    ask.expire("expire as service", "service", own, HOUR_MS)
    ask.expire("expire over plain text", "plain", own, HOUR_MS)
    ask.expire("expire in a year", "alice", own, 365 * DAY_MS)
    ask.expire("expire in an hour", "bob", own, HOUR_MS)
    # A broker applies the change a little after its answer. A session lasts as long as the token.
    _wait(lambda: 0 < _token_login(addresses, own_id, own).lifetime_ms <= HOUR_MS)
    ask.log_in("log in", own_id, own)
    for label, call in (("create", ask.create), ("describe", ask.describe)):
        call(f"{label} after a login with a token", "token")
    ask.renew("renew after a login with a token", "token", own, HOUR_MS)
    ask.log_in("log in with a wrong password", own_id, b"wrong")
    ask.log_in("log in with an unknown id", "unknown", own)
    ask.log_in("log in without the extension", own_id, own, "")
    ask.log_in("log in with the extension false", own_id, own, ",tokenauth=false")
    ask.expire("expire now", "alice", own, -1)
    _wait(lambda: _token_login(addresses, own_id, own).error)
    ask.log_in("log in with an ended token", own_id, own)
    ask.expire("expire again", "alice", own, -1)
    ask.renew("renew an ended token", "alice", own, HOUR_MS)
    return ask.results


def ask_without_key(addresses: Addresses) -> dict[str, Any]:
    """The results of requests to a broker without a secret key."""
    ask = Requests(addresses)
    ask.create("off: create", "alice")
    ask.create("off: create over plain text", "plain")
    ask.create("off: create with a renewer of another type", "alice", renewers=[_renewer("Group", "bob")])
    ask.renew("off: renew", "alice", b"unknown", HOUR_MS)
    ask.expire("off: expire", "alice", b"unknown", HOUR_MS)
    ask.describe("off: describe", "alice")
    ask.log_in("off: log in", "unknown", b"unknown")
    return ask.results


def _renewer(kind: str, name: str) -> create_delegation_token.CreatableRenewers:
    return create_delegation_token.CreatableRenewers(kind, name)


def _token_login(addresses: Addresses, token_id: str, token_hmac: bytes) -> User:
    return User(addresses["SASL_PLAINTEXT"], token_id, _text(token_hmac), extensions=",tokenauth=true")


def _text(token_hmac: bytes) -> str:
    return base64.b64encode(token_hmac).decode()


def _sees(ask: Requests, user: str, owner: str) -> bool:
    asked = describe_delegation_token.DescribeDelegationTokenRequest(None)
    return any(each.principal_name == owner for each in ask.users[user].ask(DESCRIBE, 3, asked).tokens)


def compare() -> int:
    """Print the results; the number of differences."""
    found: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, start in (("kafka", kafka), ("penstock", penstock)):
            for secret, ask in ((SECRET, ask_all), ("", ask_without_key)):
                below = Path(folder) / f"{name}-{ask.__name__}"
                below.mkdir()
                with start(below, secret) as addresses:
                    for label, result in ask(addresses).items():
                        found.setdefault(label, []).append(result)
    different = {label: both for label, both in found.items() if both[0] != both[1]}
    for label, (theirs, ours) in different.items():
        print(f"{label}\n  Kafka    {theirs}\n  Penstock {ours}")
    print(f"{len(found)} requests, {len(different)} with different results")
    return len(different)


if __name__ == "__main__":
    sys.exit(int(compare() > 0))
