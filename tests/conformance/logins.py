"""Logins of clients, and the files that give them to clients."""

import json
import ssl
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

SCRAM_SHA_256, SCRAM_SHA_512, PLAIN, OAUTHBEARER = "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"
CERTIFICATE = "certificate"  # in place of a mechanism of SASL: the client's certificate is its login
MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512, PLAIN, OAUTHBEARER, CERTIFICATE)
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"  # Kafka's system property
_MODULES = "org.apache.kafka.common.security"


class Login(NamedTuple):
    """The address of a listener with TLS, and all that a client needs to log in there."""

    address: str
    mechanism: str
    ca: str  # the path of a PEM file
    user: str = ""
    password: str = ""
    token_url: str = ""  # gives tokens to a user with a password; empty without OAUTHBEARER
    is_token: bool = False  # user and password are those of a delegation token
    certificate: str = ""  # the path of a PEM file with key and certificate; empty except for CERTIFICATE

    @property
    def protocol(self) -> str:
        """Kafka's name of the protocol."""
        return "SSL" if self.mechanism == CERTIFICATE else "SASL_SSL"

    def tls_context(self) -> ssl.SSLContext:
        """The context of a client in Python."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate:
            context.load_cert_chain(self.certificate)
        return context

    def new_token(self) -> str:
        """A token from the token endpoint (RFC 6749, section 4.4)."""
        secret = b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(
            self.token_url, data=b"grant_type=client_credentials", headers={"Authorization": f"Basic {secret}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            token: str = json.load(answer)["access_token"]
        return token


def read_login(paths: list[str]) -> Login | None:
    """The login in the first file; None without a file."""
    return Login(**json.loads(Path(paths[0]).read_text())) if paths else None


def read_settings(paths: list[str]) -> dict[str, str]:
    """The settings in the first file that `as_librdkafka` made; none without a file."""
    return dict(line.split("=", 1) for line in Path(paths[0]).read_text().splitlines()) if paths else {}


def as_json(login: Login) -> str:
    """The file of drivers whose client has no file of its own."""
    return json.dumps(login._asdict())


def as_properties(login: Login) -> str:
    """The file of Kafka's own clients and tools."""
    modules = {
        OAUTHBEARER: ("oauthbearer.OAuthBearerLoginModule", "clientId", "clientSecret"),
        PLAIN: ("plain.PlainLoginModule", "username", "password"),
    }
    module, user, password = modules.get(login.mechanism, ("scram.ScramLoginModule", "username", "password"))
    settings = {
        "security.protocol": login.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": login.ca,
    }
    if login.certificate:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": login.certificate}
    else:
        settings["sasl.mechanism"] = login.mechanism
        given = f'{user}="{login.user}" {password}="{login.password}"'
        given += ' tokenauth="true"' if login.is_token else ""
        settings["sasl.jaas.config"] = f"{_MODULES}.{module} required {given};"
    if login.token_url:
        handler = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
        settings |= {
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
        }
    return _lines(settings)


def as_librdkafka(login: Login) -> str:
    """The file of clients on librdkafka."""
    settings = {"security.protocol": login.protocol, "ssl.ca.location": login.ca}
    if login.certificate:
        return _lines(settings | {"ssl.certificate.location": login.certificate, "ssl.key.location": login.certificate})
    settings["sasl.mechanism"] = login.mechanism
    if login.token_url:
        return _lines(
            settings
            | {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": login.token_url,
                "sasl.oauthbearer.client.id": login.user,
                "sasl.oauthbearer.client.secret": login.password,
            }
        )
    return _lines(settings | {"sasl.username": login.user, "sasl.password": login.password})


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
