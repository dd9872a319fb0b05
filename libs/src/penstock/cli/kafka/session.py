"""Connections of one command to a Kafka listener, its exit code, and its errors in sentences."""

import argparse
import logging
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Protocol

from penstock.cli.kafka.profiles import OAUTHBEARER, KafkaSettings
from penstock.cli.kafka.settings import add_kafka_flags, client_configs, read_settings
from penstock.cli.output import FORMS, Result, add_output_flag, show
from penstock.cli.running import INTERRUPTED_EXIT_CODE
from penstock.contracts.errors import Invalid, PenstockError, Unavailable

CLIENT_ID = "penstock-cli"
UNKNOWN_TOPIC, TOPIC_DENIED, TOPIC_ALREADY_EXISTS, INVALID_CONFIG = 3, 29, 36, 40  # error codes of Kafka
SETUP_TIMEOUT_MS = 10_000  # of one connection, until the broker has sent its versions; default of kafka-python
_LOGGER = logging.getLogger("kafka")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Session:
    """The clients of one command. Each is made when it is first needed, and closed at the end."""

    def __init__(self, settings: KafkaSettings, timeout_s: float, *, token: str = "") -> None:
        """With a token, the clients log in by OAUTHBEARER."""
        self.settings = settings
        self.timeout_s = timeout_s
        self._configs = client_configs(settings, token) | {"client_id": CLIENT_ID}
        self._admin: Any = None
        self._open: list[Any] = []
        _LOGGER.propagate = False
        _LOGGER.handlers = _LOGGER.handlers or [logging.NullHandler()]  # without one, warnings would be printed

    @property
    def timeout_ms(self) -> int:
        """The time-out of one answer."""
        return int(self.timeout_s * 1000)

    @property
    def admin(self) -> Any:
        """The client for administration (`kafka.admin.KafkaAdminClient`)."""
        if self._admin is None:
            from kafka.admin import KafkaAdminClient

            self._admin = self._connected(KafkaAdminClient)
        return self._admin

    def new_consumer(self, **configs: Any) -> Any:
        """A `kafka.KafkaConsumer` without topics."""
        from kafka import KafkaConsumer

        return self._connected(KafkaConsumer, **configs)

    def new_producer(self, **configs: Any) -> Any:
        """A `kafka.KafkaProducer`."""
        from kafka import KafkaProducer

        return self._connected(KafkaProducer, **configs)

    def _close(self, client: Any) -> None:
        """Close a client. By itself, a producer would wait minutes for records that nothing acknowledges."""
        if type(client).__name__ != "KafkaProducer":
            client.close()
            return
        from kafka.errors import KafkaTimeoutError

        try:
            client.close(timeout=self.timeout_s)
        except KafkaTimeoutError:  # its thread goes on for ever, unless it gives the records up
            client._sender.force_close()
            client._sender.join(self.timeout_s)
            with suppress(KafkaTimeoutError):
                client.close(timeout=0)

    def close(self) -> None:
        """Close all clients."""
        for client in reversed(self._open):
            self._close(client)

    def _connected(self, kind: Callable[..., Any], **configs: Any) -> Any:
        from kafka.errors import KafkaError

        check_reachable(self.settings, self.timeout_s)
        reasons = _Reasons()
        _LOGGER.addHandler(reasons)
        try:
            with _network(kind, self.timeout_ms, reasons.networks) as network:
                client = kind(**self._configs, **self._timeouts(kind), **network, **configs)
        except KafkaError as error:
            reason = connection_error_text(self.settings, self.timeout_s, reasons.last or error_text(error))
            raise Unavailable(reason) from error
        finally:
            _LOGGER.removeHandler(reasons)
        self._open.append(client)
        return client

    def _timeouts(self, kind: Any) -> dict[str, Any]:
        """The time-outs that a kind of client knows. A client that reads keeps its own, longer than its session."""
        wanted = {"bootstrap_timeout_ms": self.timeout_ms}
        if kind.__name__ == "KafkaAdminClient":
            wanted["request_timeout_ms"] = self.timeout_ms
        return {name: value for name, value in wanted.items() if name in kind.DEFAULT_CONFIG}


@contextmanager
def _network(kind: Any, timeout_ms: int, made: list[Any]) -> Iterator[dict[str, Any]]:
    """The setting that makes the network part of a client, here in `made`. It is closed if the client cannot be made.

    kafka-python starts a thread for it before it connects. It leaves the thread and its sockets if it cannot connect.
    The clients do not have these settings of the network, so they are given here.
    """
    from penstock.cli.kafka.direct import DIRECT

    name = "kafka_client"
    make = kind.DEFAULT_CONFIG[name]
    setup = {"proxy_url": DIRECT, "socket_connection_setup_timeout_ms": min(timeout_ms, SETUP_TIMEOUT_MS)}

    def make_network(**configs: Any) -> Any:
        made.append(make(**configs | setup))
        return made[-1]

    try:
        yield {name: make_network}
    except BaseException:
        for each in made:
            each.close()
        raise


class RunVerb(Protocol):
    """A verb: it uses the session and returns a result to print, or None if it has printed."""

    def __call__(self, arguments: argparse.Namespace, session: Session) -> Result | None: ...


def add_verb(
    verbs: "argparse._SubParsersAction[Any]",
    name: str,
    run_verb: RunVerb,
    *,
    help: str,
    description: str = "",
    forms: Sequence[str] = FORMS,
) -> argparse.ArgumentParser:
    """A new verb that speaks Kafka, with the flags of all such verbs. The first of the forms is the default."""
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=description or _sentence(help))
    add_kafka_flags(verb)
    add_output_flag(verb, forms)
    verb.set_defaults(run=run, run_verb=run_verb)
    return verb


def run(arguments: argparse.Namespace) -> int:
    """Run the verb `run_verb` and print its result; 0 if that succeeded, 1 with one sentence if not."""
    code = 0
    try:
        with connected(arguments) as session:
            result = arguments.run_verb(arguments, session)
            if result is not None:
                code = show(result, arguments.output)
            sys.stdout.flush()
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    return code


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Session]:
    """A session for the length of a block. An error of the client becomes `Unavailable` with a sentence."""
    session = Session(read_settings(arguments), arguments.timeout)
    try:
        with closing(session):
            yield session
    except (PenstockError, OSError, KeyboardInterrupt):
        raise
    except Exception as error:  # all errors of kafka-python, which is imported only when a client is made
        if not type(error).__module__.startswith("kafka."):
            raise
        raise Unavailable(error_text(error)) from error


def error_text(error: BaseException) -> str:
    """An error of the client in words: its name, and the message of the cluster."""
    name = type(error).__name__.removesuffix("Error").removesuffix("Exception")
    words = _WORDS.sub(" ", name).lower()
    details = "; ".join(str(each) for each in error.args if each)
    return f"{words}: {details}" if details else words


def check_ok(code: int, message: str | None, what: str) -> None:
    """`Invalid` with a sentence about `what` if an error code of an answer is not 0."""
    if code:
        raise Invalid(f"{what}: {code_text(code, message)}")


def code_text(code: int, message: str | None = None) -> str:
    """An error code in words, or the message of the cluster."""
    from kafka.errors import for_code

    return message or error_text(for_code(code)())


def check_reachable(settings: KafkaSettings, timeout_s: float) -> None:
    """`Unavailable` at once, with the reason, if no address accepts a connection."""
    reasons = []
    for address in settings.bootstrap.split(","):
        try:
            socket.create_connection(_parted(address), timeout=timeout_s).close()
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise Unavailable(
        f"no gateway accepts a connection ({'; '.join(reasons)}); start one with `penstock up`, "
        "or name another with --bootstrap or --profile"
    )


class _Reasons(logging.Handler):
    """The last reason why a connection of one client failed.

    kafka-python only logs it, and tries again until the time-out. It connects in the thread of the client's network, or
    in that of the caller.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.networks: list[Any] = []
        self._caller = threading.current_thread()

    def emit(self, record: logging.LogRecord) -> None:
        thread = threading.current_thread()
        if thread is not self._caller and all(each._net._io_thread is not thread for each in self.networks):
            return  # of another client
        text = record.getMessage()
        if "Connection lost: " in text and "timed out" not in text and "KafkaTimeoutError" not in text:
            self.last = text.rpartition("Connection lost: ")[2]


def connection_error_text(settings: KafkaSettings, timeout_s: float, reason: str) -> str:
    """Why a listener that accepts connections does not serve this client."""
    address = settings.bootstrap.split(",")[0]
    if "AuthenticationFailed" in reason:
        advice = "the token of the issuer" if settings.sasl_mechanism == OAUTHBEARER else "user, password and mechanism"
        return f"{address} refuses the login of {settings.username!r}: check {advice}"
    has_tls = _speaks_tls(address, min(timeout_s, 2.0))
    if has_tls and not settings.security_protocol.endswith("SSL"):
        return f"the listener {address} uses TLS: give --command-config or a profile with SASL_SSL or SSL"
    if not has_tls and settings.security_protocol.endswith("SSL"):
        return f"the listener {address} does not use TLS, but the security protocol is {settings.security_protocol}"
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return (
            f"the certificate of {address} is not valid here ({_verify_error(reason)}): give the certificate of its "
            "authority as ssl.truststore.location or --ca-file, and a name of the certificate as the host"
        )
    if "IllegalSaslState" in reason:
        protocol = "SSL" if has_tls else "PLAINTEXT"
        return f"the listener {address} knows no logins: give {protocol} as the security protocol"
    if settings.security_protocol == "SSL":
        return f"{address} ends the connection ({reason}): it needs a login (SASL_SSL), or a certificate of the client"
    return (
        f"{address} does not answer as {settings.security_protocol} ({reason}): give the address of a Kafka listener, "
        "and its security protocol"
    )


def _verify_error(reason: str) -> str:
    """The reason in words, of the text of OpenSSL."""
    return re.sub(r"\s*\(_ssl\.c:\d+\)", "", reason.rpartition("certificate verify failed: ")[2])


def _speaks_tls(address: str, timeout_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only the kind of the listener is of interest
    try:
        with socket.create_connection(_parted(address), timeout=timeout_s) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        return "CERTIFICATE" in str(error.reason).upper()  # the listener asks for a certificate of the client
    except OSError:
        return False
    return True


def _parted(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    return host.strip("[]"), int(port)


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask before a change that cannot be undone; `Invalid` if the answer is not yes, or no terminal is there."""
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        raise Invalid(f"{question} Confirm it with --yes")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise Invalid("nothing was changed")


def _sentence(help_text: str) -> str:
    return f"{help_text[:1].upper()}{help_text[1:]}."
