"""The files of the wheel: all that a checkout has, and nothing of the machine that it was built on."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from penstock.version import VERSION

pytestmark = pytest.mark.dist

ROOT = Path(__file__).parents[2]
ADDED = "penstock/commit.txt"


def tracked() -> set[str]:
    """The files of all packages in the checkout, as a wheel names them."""
    listed = subprocess.run(
        ["git", "ls-files", "libs/src", "services"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.partition("/src/")[2] for name in listed.stdout.split() if (ROOT / name).exists()}


def test_the_wheel_has_every_file_of_every_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names - tracked() == {ADDED}
    assert tracked() - names == set()


def test_no_file_names_the_folder_that_it_was_built_in(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if str(ROOT).encode() in archive.read(name)] == []


def test_the_same_commit_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    command = ["git", "log", "-1", "--format=%ct"]
    epoch = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    build = [Path(sys.executable).with_name("uv"), "build", "-q", "--no-build-isolation", "--python", sys.executable]
    subprocess.run(
        [*build, "--out-dir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"SOURCE_DATE_EPOCH": epoch, "TZ": "Asia/Tokyo"},
        check=True,
    )
    for made in (wheel, wheel.with_name(f"penstock-{VERSION}.tar.gz")):
        assert (tmp_path / made.name).read_bytes() == made.read_bytes()


def test_the_metadata_name_the_licences_the_readme_and_the_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        facts = message_from_bytes(archive.read(f"penstock-{VERSION}.dist-info/METADATA"))
    assert (facts["Name"], facts["Version"], facts["License-Expression"]) == ("penstock", VERSION, "Apache-2.0")
    assert facts.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert facts["Requires-Python"] == ">=3.11"
    assert sorted(facts.get_all("Provides-Extra", [])) == ["all", "azure", "gcs", "otel", "schemas", "spark"]
    assert facts["Description-Content-Type"] == "text/markdown"
    assert str(facts.get_payload()).startswith("# Penstock")


def test_the_source_archive_has_what_a_build_needs_and_no_compiled_module(wheel: Path) -> None:
    with tarfile.open(wheel.with_name(f"penstock-{VERSION}.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "deploy/build_hook.py"} <= names
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []


def test_the_compiled_wheel_runs_the_compiled_module(tmp_path: Path) -> None:
    found = sorted((ROOT / "dist" / "compiled").glob(f"penstock-{VERSION}-*.whl"))
    if not found:
        pytest.skip("this machine compiled no module, so there is no compiled wheel")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", "--target", tmp_path, found[0]], check=True)
    code = "from penstock.kafkawire import produced_records; print(produced_records.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path / "penstock" / "kafkawire" / "produced_records."))
    assert done.stdout.strip().endswith(".so")
