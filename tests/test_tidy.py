"""The house rules, as a test over the source: sizes, purposes, what may be imported and read where."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".conf", ".cfg", ".txt", ""}
# Each of these libraries is imported by the modules whose names begin so, and by no other.
ONE_MODULE_EACH = {
    "nats": "libs/src/penstock/runtime/nats_",
    "aioboto3": "libs/src/penstock/objectstore/s3",
    "botocore": "libs/src/penstock/objectstore/s3",
    "uvloop": "libs/src/penstock/runtime/process.py",
    "pyspark": "libs/src/penstock/spark/",
}
ENVIRONMENT_READERS = re.compile(r"(config|process|__main__|spark/session)\.py$|/cli/|^tests/|^benches/")
# Words that are about how the repository is made and not about the project; joined, so that this file passes.
FOREIGN_WORDS = ["py" + "pi.org", "pythonhosted" + ".org", "npmjs" + ".org", "maven" + ".org", "/work" + "/main"]


def tracked_files() -> list[Path]:
    """Every file of the repository, also those not committed yet; not what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


FILES = tracked_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]
CODE = [path for path in PYTHON if not path.is_relative_to(ROOT / "tests")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_a_module_opens_with_its_purpose(path: Path) -> None:
    source = path.read_text()
    assert not source.strip() or ast.get_docstring(ast.parse(source)), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_modules_and_functions_stay_small(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MODULE_LINES_MAX, f"{name_of(path)} has more than {MODULE_LINES_MAX} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{name_of(path)}:{node.lineno} {node.name} has {lines} lines"


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.partition(".")[0])
    return roots


@pytest.mark.parametrize("library", ONE_MODULE_EACH)
def test_each_vendor_library_lives_behind_one_module(library: str) -> None:
    users = [name_of(path) for path in CODE if library in imported_roots(path)]
    assert not [user for user in users if not user.startswith((ONE_MODULE_EACH[library], "benches/"))]


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_only_settings_read_the_environment(path: Path) -> None:
    if not ENVIRONMENT_READERS.search(name_of(path)):
        assert not re.search(r"\bos\.(environ|getenv)\b", path.read_text()), name_of(path)


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_no_module_keeps_unfinished_business(path: Path) -> None:
    found = re.findall(r"\b(?:TODO|FIXME|XXX)\b|NotImplementedError|# type: ignore(?!\[)|# noqa(?!:)", path.read_text())
    assert not found, f"{name_of(path)}: {found}"


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix in TEXT_SUFFIXES], ids=name_of)
def test_the_repository_speaks_of_the_project_only(path: Path) -> None:
    text = path.read_text(errors="replace")
    assert not [word for word in FOREIGN_WORDS if word in text], name_of(path)


def test_only_one_boundary_per_process_catches_everything() -> None:
    """`except Exception` hides bugs; each use says at its line why it is the boundary."""
    for path in CODE:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"except Exception\b", line):
                assert "  # " in line, f"{name_of(path)}:{number} catches everything without saying why"


def test_every_test_module_has_a_name_of_its_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), "pytest cannot import two modules of one name"
