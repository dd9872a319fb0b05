"""The Protocol of a system under load."""

from collections.abc import Mapping
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

    @property
    def topic_configs(self) -> Mapping[str, str]:
        """The configurations of topics for its loads."""
        ...
