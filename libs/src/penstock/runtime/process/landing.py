"""The landing store at the process's own NATS servers, as a complete address for all that open the store."""

from urllib.parse import parse_qsl, urlencode

from penstock.runtime.nats.tls import NatsTls

LANDING = "landing"  # the option of a store's address
OWN_SERVERS = "jetstream:"  # its value for the servers of the process, with options after it


def with_landing(store_url: str, *, cluster: str, nats_url: str, user: str, password: str, tls: NatsTls) -> str:
    """`store_url`; its option `landing=jetstream:` becomes an address with these servers, their login and its files.

    Other processes, such as Spark's workers, then need nothing but the address.
    """
    if not needs_servers(store_url):
        return store_url
    place, options = _parsed(store_url)
    servers = ",".join(server.strip().partition("://")[2] or server.strip() for server in nats_url.split(","))
    login = {"user": user, "password": password}
    files = {
        "tls": "on" if "tls://" in nats_url else "",
        "tls_ca": tls.ca,
        "tls_certificate": tls.certificate,
        "tls_key": tls.key,
    }
    added = urlencode({name: value for name, value in (login | files).items() if value})
    given = options[LANDING].removeprefix(OWN_SERVERS).lstrip("?")
    inner = "&".join(part for part in (given, added) if part)
    options[LANDING] = f"{OWN_SERVERS}//{servers}/{cluster}" + (f"?{inner}" if inner else "")
    return f"{place}?{urlencode(options)}"


def needs_servers(store_url: str) -> bool:
    """Whether `with_landing` changes the address."""
    landing = _parsed(store_url)[1].get(LANDING, "")
    return landing.startswith(OWN_SERVERS) and not landing.startswith(f"{OWN_SERVERS}//")


def without_landing(store_url: str) -> str:
    """`store_url` without its landing store, for a process that runs before NATS does."""
    place, options = _parsed(store_url)
    if LANDING not in options:
        return store_url
    del options[LANDING]
    return place + (f"?{urlencode(options)}" if options else "")


def _parsed(store_url: str) -> tuple[str, dict[str, str]]:
    place, _, query = store_url.partition("?")
    return place, dict(parse_qsl(query, keep_blank_values=True))
