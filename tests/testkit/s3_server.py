"""An S3 server in a child process with one empty bucket, for tests; `seaweed` and `moto` say which."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

ACCESS_KEY = "testing"
SECRET_KEY = "testing-secret"
BUCKET = "penstock-tests"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class S3Server:
    """Where the server is and how it is spoken to."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.process = process
        self.log_path = log_path

    def url(self, prefix: str = "", *, bucket: str = BUCKET, secret_key: str = SECRET_KEY) -> str:
        """The address for `open_store`."""
        options = {"endpoint": self.endpoint, "access_key": ACCESS_KEY, "secret_key": secret_key}
        return f"s3://{bucket}/{prefix}?{urlencode(options)}"

    def environment(self) -> dict[str, str]:
        """The credentials as boto looks for them."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@contextlib.contextmanager
def running(folder: Path, command: Callable[[list[int]], Sequence[str]], ports: int = 1) -> Iterator[S3Server]:
    """The server that `command` (given free ports, the first for S3) starts; ended with all it keeps in `folder`."""
    chosen = _free_ports(ports)
    log_path = folder / "s3-server.log"
    with log_path.open("wb") as output:
        process = subprocess.Popen(command(chosen), cwd=folder, stdout=output, stderr=output)
    server = S3Server(chosen[0], process, log_path)
    try:
        _wait_until_it_stores(server)
        yield server
    finally:
        process.kill()  # there is nothing worth saving
        process.wait(STOP_TIMEOUT_S)


def _wait_until_it_stores(server: S3Server) -> None:
    """Make the bucket, and put an object and delete it, as soon as the server lets us."""
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
                log = server.log_path.read_text(errors="replace")[-3000:]
                assert server.process.poll() is None, f"the s3 server ended: {log}"
                assert time.monotonic() < deadline_s, f"the s3 server does not store objects: {error}\n{log}"
            time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
