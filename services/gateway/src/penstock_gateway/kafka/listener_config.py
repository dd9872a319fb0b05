"""The settings `listeners` and `advertised_listeners`: addresses to listen on, and addresses for clients. Pure."""

import ipaddress
import re

import msgspec

from penstock.contracts.errors import Invalid
from penstock.contracts.messages import ListenerAddress

PORT_MAX = 65_535
LISTENERS = "listeners"
ADVERTISED_LISTENERS = "advertised listeners"
EVERY_IPV4_INTERFACE = "0.0.0.0"  # the meaning of an address without a host, as in Kafka
_NAME = re.compile(r"[A-Z][A-Z0-9_-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9._-]{0,255}")
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^]]*)\]|(?P<host>[^:]*)):(?P<port>[0-9]{1,9})")


class ListenerSpec(msgspec.Struct, frozen=True):
    """A listener as it was configured."""

    name: str
    host: str
    port: int  # 0: any free one
    advertised: ListenerAddress | None = None  # none: clients get the address that it is bound to

    @property
    def is_wildcard(self) -> bool:
        """Whether it listens on every interface, so that clients cannot use its host."""
        return _is_wildcard(self.host)


def parse_listeners(listeners: str, advertised_listeners: str) -> list[ListenerSpec]:
    """The listeners of two lists of NAME://host:port; `Invalid` with one sentence if a list is wrong."""
    listening = _parse(LISTENERS, listeners)
    if not listening:
        raise Invalid(f"{LISTENERS} must have at least one address NAME://host:port")
    ports = [each.port for each in listening if each.port]
    for port in ports:
        if ports.count(port) > 1:  # the kernel would let both share it, and distribute clients over them
            raise Invalid(f"{LISTENERS} must have different ports: {port} occurs twice")
    advertised = {each.name: each for each in _parse(ADVERTISED_LISTENERS, advertised_listeners)}
    for each in advertised.values():
        _check_advertised(each, [known.name for known in listening])
    return [
        ListenerSpec(each.name, each.host or EVERY_IPV4_INTERFACE, each.port, advertised.get(each.name))
        for each in listening
    ]


def advertised_address(spec: ListenerSpec, port: int, own_host: str) -> ListenerAddress:
    """The address for clients of a listener on `port`; `own_host` is this machine's name for other machines."""
    if spec.advertised is not None:
        return spec.advertised
    return ListenerAddress(spec.name, own_host if spec.is_wildcard else spec.host, port)


def host_and_port(host: str, port: int) -> str:
    """host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse(setting: str, text: str) -> list[ListenerAddress]:
    found: dict[str, ListenerAddress] = {}
    for item in text.split(",") if text.strip() else []:
        each = _parse_one(setting, item.strip())
        if each.name in found:
            raise Invalid(f"{setting} must have different names: {each.name} occurs twice")
        found[each.name] = each
    return list(found.values())


def _parse_one(setting: str, item: str) -> ListenerAddress:
    name, scheme, address = item.partition("://")
    parts = _ADDRESS.fullmatch(address)
    if not scheme or parts is None:
        hint = " (an IPv6 address stands in brackets)" if address.count(":") > 1 and "[" not in address else ""
        raise Invalid(f"{setting} must be NAME://host:port, separated by commas{hint}: {item!r}")
    name = name.upper()
    if not _NAME.fullmatch(name):
        raise Invalid(f"{setting}: a name is a letter, then at most 63 letters, digits, '_' and '-': {item!r}")
    if int(parts["port"]) > PORT_MAX:
        raise Invalid(f"{setting}: a port is at most {PORT_MAX}: {item!r}")
    host = parts["host"] if parts["ipv6"] is None else parts["ipv6"]
    if not (_HOST.fullmatch(host) if parts["ipv6"] is None else _is_ipv6(host)):
        raise Invalid(f"{setting}: {host!r} is no valid host: {item!r}")
    return ListenerAddress(name, host, int(parts["port"]))


def _check_advertised(each: ListenerAddress, known: list[str]) -> None:
    if each.name not in known:
        raise Invalid(f"{ADVERTISED_LISTENERS}: {each.name} is no listener; there are {', '.join(known)}")
    if not each.host or _is_wildcard(each.host):
        raise Invalid(f"{ADVERTISED_LISTENERS}: clients cannot connect to the host {each.host!r} of {each.name}")
    if not each.port:
        raise Invalid(f"{ADVERTISED_LISTENERS}: clients cannot connect to port 0 of {each.name}")


def _is_ipv6(host: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(host))
    except ValueError:
        return False


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False
