"""An S3 server with one empty bucket, for tests; `seaweed` and `moto` start the programs."""

import contextlib
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.testkit.servers.backend import LOOPBACK, Backend

ACCESS_KEY = "testing"
SECRET_KEY = "testing-secret"
BUCKET = "penstock-tests"
START_TIMEOUT_S = 60.0
LOG_CHARACTERS = 3000
POLL_S = 0.05


class S3Server:
    """The address and the credentials of a server."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://{LOOPBACK}:{port}"

    def url(self, prefix: str = "", *, bucket: str = BUCKET, secret_key: str = SECRET_KEY) -> str:
        """The address for `open_store`."""
        options = {"endpoint": self.endpoint, "access_key": ACCESS_KEY, "secret_key": secret_key}
        return f"s3://{bucket}/{prefix}?{urlencode(options)}"

    def environment(self) -> dict[str, str]:
        """The credentials as environment variables of boto."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@contextlib.contextmanager
def running(backend: Backend, port: int) -> Iterator[S3Server]:
    """A just started backend that speaks S3 on `port`, killed at the end."""
    server = S3Server(port)
    try:
        _wait_until_it_stores(server, backend)
        yield server
    finally:
        backend.kill()  # its data is not needed again


def _wait_until_it_stores(server: S3Server, backend: Backend) -> None:
    """Return when the server has made the bucket, and has stored and deleted an object."""
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(connect_timeout=1, read_timeout=5, retries={"total_max_attempts": 1}),
    )
    deadline_s = time.monotonic() + START_TIMEOUT_S
    with contextlib.closing(client):
        while True:
            try:
                if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="probe", Body=b"probe")
                client.delete_object(Bucket=BUCKET, Key="probe")
                return
            except (BotoCoreError, ClientError) as error:
                assert backend.is_running(), f"the s3 server ended: {backend.log()[-LOG_CHARACTERS:]}"
                assert time.monotonic() < deadline_s, (
                    f"the s3 server does not store objects: {error}\n{backend.log()[-LOG_CHARACTERS:]}"
                )
            time.sleep(POLL_S)
