"""The nats-server's settings, read back by the server itself."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid
from penstock.runtime.nats.server import cluster_config, find_nats_server, server_config, write_config


def accepts(path: Path) -> bool:
    checked = subprocess.run([find_nats_server(), "--config", str(path), "-t"], capture_output=True, check=False)
    return checked.returncode == 0


def test_the_program_comes_with_the_environment() -> None:
    assert find_nats_server().parent == Path(sys.executable).parent


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Invalid, match="no nats-server found"):
        find_nats_server()


def test_every_entry_is_synced_before_it_is_acknowledged() -> None:
    text = server_config(store_dir=Path("/data/nats"), host="127.0.0.1", port=4222)
    assert 'jetstream { store_dir: "/data/nats", sync_interval: always, max_file_store: ' in text
    assert "max_payload: 8388608\n" in text
    assert "http:" not in text


def test_the_monitoring_port_listens_on_loopback_only() -> None:
    text = server_config(store_dir=Path("/data"), host="0.0.0.0", port=4222, monitor_port=8222)
    assert 'http: "127.0.0.1:8222"\n' in text


@pytest.mark.parametrize("password", ["plain", 'with "quotes" and \\ and # and $', "ünïcode"])
def test_the_server_accepts_the_settings_with_any_password_and_folder(tmp_path: Path, password: str) -> None:
    path = tmp_path / "nats-server.conf"
    write_config(
        path,
        store_dir=tmp_path / 'a folder "named" #1',
        host="127.0.0.1",
        port=4222,
        monitor_port=8222,
        user="penstock",
        password=password,
        log_path=tmp_path / "a log.log",
        log_bytes_max=2**20,
    )
    assert accepts(path), path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"cannot write the nats-server's settings to .*: No such file"):
        write_config(tmp_path / "missing" / "x.conf", store_dir=tmp_path, host="127.0.0.1", port=1)


def test_the_server_accepts_the_settings_of_a_cluster_and_advertises_no_other_address(tmp_path: Path) -> None:
    path = tmp_path / "nats-server.conf"
    routes = ["nats://a:6222", "nats://b:6222"]
    text = cluster_config(server_name="a", cluster_name="penstock", host="127.0.0.1", port=6222, routes=routes)
    path.write_text(server_config(store_dir=tmp_path / "data", host="127.0.0.1", port=4222) + text)
    assert accepts(path), path.read_text()
    assert "no_advertise: true\n" in text
    assert 'ping_interval: "1s"\n' in text
