"""The version of Penstock, and the commit that it was built from."""

from pathlib import Path

VERSION = "0.1.0"  # the only place; `pyproject.toml` reads it from here
COMMIT_FILE = "commit.txt"  # beside this module in a wheel: `deploy/build_hook.py` writes it
_HERE = Path(__file__).parent


def find_commit(package: Path = _HERE) -> str:
    """The commit of this code in hex digits, or nothing if it is not known; "-modified" follows if files differ.

    A wheel has it in a file. In a checkout git is asked.
    """
    try:
        return (package / COMMIT_FILE).read_text(encoding="ascii").strip()
    except OSError:
        return commit_of_checkout(package.parents[2]) if package.parts[-3:-1] == ("libs", "src") else ""


def commit_of_checkout(root: Path) -> str:
    """The commit that is checked out in a folder, or nothing without git or a repository of its own."""
    if not (root / ".git").exists():
        return ""
    import subprocess  # a quarter of the time of `penstock --version`, and a wheel does not need it

    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=-modified"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, or a repository that it does not trust
        return ""
