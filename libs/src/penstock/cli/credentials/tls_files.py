"""The certificates of NATS as files: those that are good stay, the others are made again.

Only `penstock credentials` reads the folder with the key of the authority. Servers and services need its certificate.
"""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.credentials.private_files import read
from penstock.cli.credentials.wanted import AUTHORITY, SERVER, Wanted
from penstock.cli.identities.certificates import Identity, is_good, new_authority, new_certificate

CA, CERTIFICATE, KEY = "ca.pem", "nats.pem", "nats-key.pem"
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1")


def tls_files(folder: Path, wanted: Wanted, now: datetime.datetime) -> Iterator[tuple[str, str, int | None]]:
    """The name, the text and the owner of each file, those of the authority first."""
    authority = _found(folder, AUTHORITY)
    if AUTHORITY in wanted.rotate or not is_good(authority, authority, now):
        authority = new_authority(f"Penstock NATS of {wanted.cluster}", now)
    yield from _files(AUTHORITY, authority, "", None)
    for name in (SERVER, *wanted.roles):
        hosts = _hosts(wanted) if name == SERVER else ()
        found = _found(folder, name)
        if name in wanted.rotate or not is_good(found, authority, now, hosts):
            found = new_certificate(authority, name, now, hosts=hosts)
        yield from _files(name, found, authority.certificate, None if name == SERVER else wanted.owner)


def _files(name: str, identity: Identity, ca: str, owner: int | None) -> Iterator[tuple[str, str, int | None]]:
    yield f"{name}/{KEY}", identity.key, owner
    yield f"{name}/{CERTIFICATE}", identity.certificate, owner
    if ca:
        yield f"{name}/{CA}", ca, owner


def _found(folder: Path, name: str) -> Identity:
    return Identity(read(folder / name / CERTIFICATE), read(folder / name / KEY))


def _hosts(wanted: Wanted) -> list[str]:
    """The servers' names and addresses, without ports and brackets."""
    nodes = [re.sub(r":[0-9]+\Z", "", node).strip("[]") for node in wanted.nats_nodes]
    return list(dict.fromkeys((*nodes, *wanted.nats_hosts, *_OWN_HOSTS)))
