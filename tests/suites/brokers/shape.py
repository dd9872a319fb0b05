"""The shape of brokers that a suite asks for, and the started brokers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests.conformance.logins import SCRAM_SHA_512, Login

COUNT = 3
USER, PASSWORD = "admin", "admin-secret"  # an administrator on listeners with logins


class Shape(NamedTuple):
    """The offers of brokers."""

    has_logins: bool = False  # SASL_SSL, else no login and no TLS
    creates_topics: bool = True
    partitions: int = 1  # of topics that are made without a number
    reauthentication_ms: int = 0  # time after which clients log in again


class Brokers(NamedTuple):
    """Started brokers."""

    addresses: tuple[str, ...]
    login_addresses: tuple[str, ...]  # for SCRAM without TLS
    login: Login | None  # of an administrator, if `addresses` ask for logins

    @property
    def bootstrap(self) -> str:
        """All addresses in one text."""
        return ",".join(self.addresses)


# Starts brokers of a shape, with their data in a folder.
Opener = Callable[[Path, Shape], AbstractContextManager[Brokers]]


def administrator(address: str, ca: Path, password: str = PASSWORD) -> Login:
    """The login of the administrator."""
    return Login(address, SCRAM_SHA_512, str(ca), USER, password)
