"""A token for logins of kafka-python by OAUTHBEARER. It is imported late, as kafka-python is."""

from kafka.net.sasl.oauth import AbstractTokenProvider


class OneToken(AbstractTokenProvider):  # type: ignore[misc]
    """Gives each connection of a client the same token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token
