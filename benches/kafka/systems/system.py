"""The Protocol of a system under load."""

from typing import Protocol


class System(Protocol):
    """A running server, or several processes that are one together."""

    @property
    def bootstrap(self) -> str:
        """The address for Kafka clients."""
        ...

    @property
    def pid(self) -> int:
        """The process whose descendants are all processes of the system."""
        ...
