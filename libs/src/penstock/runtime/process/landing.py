"""The landing store at the process's own NATS servers, as a complete address for all that open the store."""

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from penstock.runtime.nats.tls import NatsTls

LANDING = "landing"  # the option of a store's address
LANDING_FOR = "landing_for"
OWN_SERVERS = "jetstream:"  # its value for the servers of the process, with options after it
_LOGIN = ("user", "password", "tls", "tls_ca", "tls_certificate", "tls_key")


def with_landing(store_url: str, *, cluster: str, nats_url: str, user: str, password: str, tls: NatsTls) -> str:
    """`store_url`; its option `landing=jetstream:` becomes an address with these servers, their login and its files.

    Other processes, such as Spark's workers, then need nothing but the address.
    """
    if not needs_servers(store_url):
        return store_url
    place, options = _parsed(store_url)
    given = _landings(options)[0].removeprefix(OWN_SERVERS).lstrip("?")
    complete = _landing(cluster, given, nats_url, user, password, tls)
    return f"{place}?{urlencode([(name, complete if name == LANDING else value) for name, value in options])}"


def landing_at(store_url: str, old_nats_url: str) -> str:
    """The address of the landing store if it is at these servers, else ""."""
    old = set(_hosts(old_nats_url).split(","))
    for landing in _landings(_parsed(store_url)[1]):
        servers = landing.partition("?")[0].removeprefix(f"{OWN_SERVERS}//").partition("/")[0]
        if landing.startswith(OWN_SERVERS) and old & set(servers.split(",")):
            return landing
    return ""


def moved_landing(landing: str, *, nats_url: str, user: str, password: str, tls: NatsTls) -> str:
    """The address of the same landing store at other servers, with the login there."""
    place, _, query = landing.partition("?")
    kept = {name: value for name, value in parse_qsl(query) if name not in _LOGIN}
    return _landing(place.rpartition("/")[2], urlencode(kept), nats_url, user, password, tls)


def _landing(name: str, given: str, nats_url: str, user: str, password: str, tls: NatsTls) -> str:
    values = (user, password, "on" if "tls://" in nats_url else "", tls.ca, tls.certificate, tls.key)
    added = urlencode({option: value for option, value in zip(_LOGIN, values, strict=True) if value})
    inner = "&".join(part for part in (given, added) if part)
    return f"{OWN_SERVERS}//{_hosts(nats_url)}/{name}" + (f"?{inner}" if inner else "")


def _hosts(nats_url: str) -> str:
    return ",".join(server.strip().partition("://")[2] or server.strip() for server in nats_url.split(","))


def needs_servers(store_url: str) -> bool:
    """Whether `with_landing` changes the address."""
    landing = _landings(_parsed(store_url)[1])
    return len(landing) == 1 and landing[0].startswith(OWN_SERVERS) and not landing[0].startswith(f"{OWN_SERVERS}//")


def without_landing(store_url: str) -> str:
    """`store_url` without its landing stores, for a process that runs before NATS does."""
    place, options = _parsed(store_url)
    left = [(name, value) for name, value in options if name not in (LANDING, LANDING_FOR)]
    if left == options:
        return store_url
    return place + (f"?{urlencode(left)}" if left else "")


def _landings(options: Sequence[tuple[str, str]]) -> list[str]:
    return [value for name, value in options if name == LANDING]


def _parsed(store_url: str) -> tuple[str, list[tuple[str, str]]]:
    place, _, query = store_url.partition("?")
    return place, parse_qsl(query, keep_blank_values=True)
