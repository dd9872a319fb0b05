"""Whether other machines can reach `penstock up`, which then needs the user's consent."""

import ipaddress
import socket

from penstock.cli.ports import Address
from penstock.contracts.errors import Invalid


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host; a name must resolve to loopback addresses only.

    `Invalid` if the name does not resolve.
    """
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise Invalid(f"{host}: no such host ({error.strerror})") from error
    return bool(found) and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


def check_addresses(
    kafka: Address, http: Address, *, has_token: bool, is_secure: bool = False, is_insecure: bool = False
) -> str:
    """A warning for the user about addresses that others can reach, "" if there are none.

    `Invalid` if there are such addresses, and the user did not accept that.
    """
    flags = [f"--kafka {kafka}"] if not is_secure and not is_loopback(kafka.host) else []
    if not has_token and not is_loopback(http.host):
        flags.append(f"--http {http}")
    if not flags:
        return ""
    named = " and ".join(flags)
    if not is_insecure:
        raise Invalid(
            f"{named} can be reached from other machines, and has no logins: every client would be an administrator. "
            "Use 127.0.0.1. Or use --secure for logins and TLS; --http then needs --http-token-file. "
            "Or accept it with --insecure, in a network that you trust"
        )
    return f"{named}: every machine that reaches it is an administrator, because there are no logins (--insecure)"
