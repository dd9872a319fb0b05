"""An administrator that changes users and access control lists through any gateway, and reads them."""

import asyncio

from penstock.kafkawire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.kafkawire.api.create_acls import AclCreation, CreateAclsRequest
from penstock.kafkawire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.kafkawire.api.describe_acls import DescribeAclsRequest
from penstock.kafkawire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.testkit.sim.clients.kafka import (
    ALTER_SCRAM,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_SCRAM,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)

PAUSE_S = (0.05, 1.0)
USERS = ("alice", "bob", "carol")
TOPICS = ("orders", "payments", "ord")
ANY, TOPIC, LITERAL, PREFIXED, READ, WRITE, ALLOW, DENY = 1, 2, 3, 4, 3, 4, 3, 2
SHA_256, SHA_512 = 1, 2
ITERATIONS = (4_096, 16_384)


class SecurityOperator:
    """Changes and reads until cancelled; the judge of answers checks each answer."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def run(self) -> None:
        """One request after the other."""
        steps = (self._alter, self._alter, self._create, self._create, self._delete, self._describe, self._describe)
        while True:
            connection = await self._client.connect()
            try:
                while True:
                    await self._client.stream.choice(steps)(connection)
                    await asyncio.sleep(self._client.stream.uniform(*PAUSE_S))
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()

    async def _alter(self, connection: Connection) -> None:
        stream = self._client.stream
        name, mechanism = stream.choice(USERS), stream.choice((SHA_256, SHA_512))
        if stream.random() < 0.3:
            request = AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, mechanism)])
        else:
            salted = (stream.randbytes(32), stream.randbytes(32))
            upsertion = ScramCredentialUpsertion(name, mechanism, stream.randint(*ITERATIONS), *salted)
            request = AlterUserScramCredentialsRequest([], [upsertion])
        await connection.ask(ALTER_SCRAM, 0, request)

    async def _create(self, connection: Connection) -> None:
        stream = self._client.stream
        creations = [
            AclCreation(
                TOPIC,
                stream.choice(TOPICS),
                stream.choice((LITERAL, PREFIXED)),
                f"User:{stream.choice(USERS)}",
                "*",
                stream.choice((READ, WRITE)),
                stream.choice((ALLOW, DENY)),
            )
            for _ in range(stream.randint(1, 3))
        ]
        await connection.ask(CREATE_ACLS, 3, CreateAclsRequest(creations))

    async def _delete(self, connection: Connection) -> None:
        stream = self._client.stream
        name = stream.choice((None, *TOPICS))
        pattern = stream.choice((ANY, LITERAL, PREFIXED))
        wanted = DeleteAclsFilter(TOPIC, name, pattern, f"User:{stream.choice(USERS)}", None, ANY, ANY)
        await connection.ask(DELETE_ACLS, 3, DeleteAclsRequest([wanted]))

    async def _describe(self, connection: Connection) -> None:
        await connection.ask(DESCRIBE_SCRAM, 0, DescribeUserScramCredentialsRequest())
        await connection.ask(DESCRIBE_ACLS, 3, DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY))
