"""The code of a previous version, from an archive in tests/fixtures, so that tests run in a shallow checkout.

`python -m tests.testkit.previous COMMIT` makes the archive anew; `make previous` does that at each release.
"""

import lzma
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "previous" / "code.tar.xz"
COMMIT = ARCHIVE.with_name("commit")
SERVICES = ("sequencer", "flusher", "cacher", "gateway", "janitor")
# The code, and all that the images of these services are built from.
CONTENTS = ("libs", "deploy", "Dockerfile", "requirements.lock", "requirements-spark.lock", "pyproject.toml")
VERSION = "0.1.0"


def take_out(folder: Path) -> Path:
    """Write the code to the folder, and return the folder."""
    with tarfile.open(ARCHIVE, "r:xz") as archive:
        archive.extractall(folder, filter="data")
    for service in SERVICES:  # the previous version looks for its own number in the metadata of its distributions
        metadata = folder / "services" / service / "src" / f"penstock_{service}-{VERSION}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: penstock-{service}\nVersion: {VERSION}\n")
    return folder


def level_of(release: Path) -> int:
    """The level to which this code raises a cluster."""
    contracts = release / "libs" / "src" / "penstock" / "contracts"
    for name in ("newest_level.py", "levels.py"):  # the first exists since level 9
        path = contracts / name
        if path.exists() and (found := re.search(r"^NEWEST_LEVEL = (\d+)", path.read_text(), re.MULTILINE)):
            return int(found[1])
    raise LookupError(f"no level in {contracts}")


def pythonpath(release: Path) -> str:
    """The value of PYTHONPATH that makes every process run this code."""
    return os.pathsep.join([str(release / "libs" / "src"), *(str(release / "services" / s / "src") for s in SERVICES)])


def main() -> int:
    """Make the archive of a commit."""
    if len(sys.argv) != 2:
        sys.stderr.write("give the commit of the previous version\n")
        return 2
    commit = subprocess.run(["git", "rev-parse", "--verify", sys.argv[1]], capture_output=True, text=True, check=True)
    name = commit.stdout.strip()
    contents = [*CONTENTS, *(f"services/{service}" for service in SERVICES)]
    made = subprocess.run(["git", "archive", name, *contents], capture_output=True, check=True)
    ARCHIVE.write_bytes(lzma.compress(made.stdout, preset=9 | lzma.PRESET_EXTREME))
    COMMIT.write_text(f"{name}\n")
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
