"""Certificates for NATS are made once, belong together, and are renewed before they end."""

import datetime
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from penstock.cli.credentials import ROLES, Wanted, make_credentials
from penstock.cli.identities.certificates import CERTIFICATE_DAYS, RENEWAL_DAYS
from penstock.runtime.clock import SystemEntropy
from tests.testkit.fakes.clock import ManualClock

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
FOLDERS = {"ca", "nats", *ROLES}


def make(folder: Path, now_ms: int = NOW_MS, **options: Any) -> list[str]:
    wanted = Wanted(with_tls=True, **options)
    return [
        name
        for name in make_credentials(folder, wanted, SystemEntropy(), ManualClock(0, now_ms))
        if name.endswith(".pem")
    ]


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / name / "nats.pem").read_bytes())


def files_of(*names: str) -> set[str]:
    return {f"{name}/{file}" for name in names for file in ("nats.pem", "nats-key.pem")}


def test_servers_and_services_get_certificates_of_one_authority(tmp_path: Path) -> None:
    written = make(tmp_path, nats_nodes=("nats", "10.0.0.1:6222"), nats_hosts=("nats.example",))
    assert set(written) == files_of(*FOLDERS) | {f"{name}/ca.pem" for name in FOLDERS - {"ca"}}
    authority = certificate(tmp_path, "ca")
    policy = PolicyBuilder().store(Store([authority]))
    now = datetime.datetime.fromtimestamp(NOW_MS / 1000, datetime.UTC)
    for host in ("nats", "nats.example", "localhost"):
        policy.time(now).build_server_verifier(x509.DNSName(host)).verify(certificate(tmp_path, "nats"), [])
    for role in ROLES:
        issued = certificate(tmp_path, role)
        issued.verify_directly_issued_by(authority)
        assert issued.subject.rfc4514_string() == f"CN={role}"
        usage = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
        assert (tmp_path / role / "ca.pem").read_bytes() == (tmp_path / "ca" / "nats.pem").read_bytes()
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in written} == {0o400}


def test_the_key_of_the_authority_is_in_its_own_folder_only(tmp_path: Path) -> None:
    make(tmp_path)
    key = (tmp_path / "ca" / "nats-key.pem").read_bytes()
    assert [path.parent.name for path in tmp_path.rglob("*.pem") if key in path.read_bytes()] == ["ca"]


def test_a_second_run_keeps_all_certificates_until_they_nearly_end(tmp_path: Path) -> None:
    make(tmp_path)
    left = CERTIFICATE_DAYS - RENEWAL_DAYS
    assert make(tmp_path, NOW_MS + (left - 1) * DAY_MS) == []
    assert set(make(tmp_path, NOW_MS + (left + 1) * DAY_MS)) == files_of(*FOLDERS - {"ca"})


def test_another_host_needs_another_certificate_of_the_servers_only(tmp_path: Path) -> None:
    make(tmp_path)
    assert set(make(tmp_path, nats_hosts=("nats.example",))) == files_of("nats")


@pytest.mark.parametrize("name", ["nats", *ROLES])
def test_a_rotation_replaces_one_certificate(tmp_path: Path, name: str) -> None:
    make(tmp_path)
    assert set(make(tmp_path, rotate=(name,))) == files_of(name)


def test_the_rotation_of_the_authority_replaces_all(tmp_path: Path) -> None:
    everything = set(make(tmp_path))
    assert set(make(tmp_path, rotate=("ca",))) == everything


def test_a_certificate_whose_key_is_another_one_is_replaced(tmp_path: Path) -> None:
    """A run that ends between the two files leaves such a pair."""
    make(tmp_path)
    key = tmp_path / "flusher" / "nats-key.pem"
    key.chmod(0o600)
    key.write_bytes((tmp_path / "cacher" / "nats-key.pem").read_bytes())
    assert set(make(tmp_path)) == files_of("flusher")
