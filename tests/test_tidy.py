"""The rules of the repository as tests over its source: sizes, docstrings, imports, words."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.testkit import house, prose

ROOT = Path(__file__).parent.parent
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
PACKAGE_MODULES_MAX = 20
FLAT_PACKAGES = {"penstock/kafkawire/api"}  # one module per API of the protocol
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".conf", ".cfg", ".txt", ""}
# Only modules whose paths begin so import these libraries.
ONE_MODULE_EACH = {
    "nats": "libs/src/penstock/runtime/nats/",
    "aioboto3": "libs/src/penstock/objectstore/s3",
    "botocore": "libs/src/penstock/objectstore/s3",
    "opentelemetry": "libs/src/penstock/runtime/traces/otel.py",
    "uvloop": "libs/src/penstock/runtime/process/life.py",
    "pyspark": "libs/src/penstock/spark/",
}
ENVIRONMENT_READERS = re.compile(
    r"(config|process/life|__main__|spark/session|deploy/build_hook)\.py$|/cli/|penstock/testing/|^tests/|^benches/"
)
# Words about how the repository is made, not about the project. They are joined here so that this file passes.
FOREIGN_WORDS = ["py" + "pi.org", "pythonhosted" + ".org", "npmjs" + ".org", "maven" + ".org", "/work" + "/main"]


def tracked_files() -> list[Path]:
    """Every file of the repository, also uncommitted ones, except those that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


FILES = tracked_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]
PRODUCT = [path for path in PYTHON if name_of(path).startswith(("libs/", "services/"))]
CODE = [path for path in PYTHON if not path.is_relative_to(ROOT / "tests")]


@cache
def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


class Facts(NamedTuple):
    """Facts of a module's syntax that the rules need. To keep the syntax trees would cost more than to make them."""

    is_explained: bool
    functions: list[tuple[str, int]]  # places and names, with lengths in lines
    imported: set[str]


@cache
def facts_of(path: Path) -> Facts:
    tree = ast.parse(text_of(path))
    functions, imported = [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            functions.append((f"{name_of(path)}:{node.lineno} {node.name}", length))
        elif isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    return Facts(bool(ast.get_docstring(tree)), functions, imported)


# One test for each rule reports all files that break it. A test for each file and rule would be far slower.
def test_a_module_opens_with_its_purpose() -> None:
    unexplained = [name_of(path) for path in PYTHON if text_of(path).strip() and not facts_of(path).is_explained]
    assert not unexplained, f"without a docstring: {unexplained}"


def test_modules_stay_small() -> None:
    large = [name_of(path) for path in CODE if text_of(path).count("\n") > MODULE_LINES_MAX]
    assert not large, f"more than {MODULE_LINES_MAX} lines: {large}"


def test_functions_stay_small() -> None:
    functions = [function for path in CODE for function in facts_of(path).functions]
    large = [name for name, lines in functions if lines > FUNCTION_LINES_MAX]
    assert not large, f"more than {FUNCTION_LINES_MAX} lines: {large}"


def test_packages_stay_small() -> None:
    packages = house.largest_packages(name_of(path) for path in PRODUCT)
    large = [package for package, count in packages if count > PACKAGE_MODULES_MAX]
    assert set(large) <= FLAT_PACKAGES, f"more than {PACKAGE_MODULES_MAX} modules: {large}"


def test_no_modules_and_no_packages_import_each_other() -> None:
    graph = house.import_graph({name_of(path): text_of(path) for path in PRODUCT})
    assert house.mutual_packages(graph) == []
    assert house.cycles(graph) == []


def test_tests_pass_limits_and_use_public_names() -> None:
    """Tests pass limits as structs, use fakes instead of mocks, and read only public attributes."""
    tests = [path for path in PYTHON if path not in PRODUCT]
    rules = (house.patched_constants, house.mock_uses, house.private_reads)
    found = {(name_of(path), rule.__doc__): count for path in tests for rule in rules if (count := rule(text_of(path)))}
    assert not found, found


def test_tests_measure_no_processor_time() -> None:
    """A busy machine needs more of it for the same work. `tests/testkit/work.py` counts the work."""
    timed = re.compile(r"\b(?:process|thread)_time\b")
    assert not [name_of(path) for path in PYTHON if path not in CODE and timed.search(text_of(path))]


def test_the_english_is_plain() -> None:
    """Sentences are short, with a named subject and standard terms; CONTRIBUTING.md contains the reasons."""
    pages = [path for path in FILES if path.suffix in (".py", ".md")]
    found = [finding for path in pages for finding in prose.findings(name_of(path), text_of(path))]
    lines = [f"{each.path}:{each.line}: {each.why}" for each in found]
    assert not lines, "\n".join([f"{len(lines)} places to mend", *lines[:50]])


@pytest.mark.parametrize("library", ONE_MODULE_EACH)
def test_each_vendor_library_is_behind_one_module(library: str) -> None:
    users = [name_of(path) for path in CODE if library in facts_of(path).imported]
    assert not [user for user in users if not user.startswith((ONE_MODULE_EACH[library], "benches/"))]


def test_only_settings_read_the_environment() -> None:
    others = [path for path in CODE if not ENVIRONMENT_READERS.search(name_of(path))]
    assert not [name_of(path) for path in others if re.search(r"\bos\.(environ|getenv)\b", text_of(path))]


def test_no_module_has_unfinished_code() -> None:
    unfinished = re.compile(r"\b(?:TODO|FIXME|XXX)\b|NotImplementedError|# type: ignore(?!\[)|# noqa(?!:)")
    found = {name_of(path): unfinished.findall(text_of(path)) for path in CODE}
    assert not {name: words for name, words in found.items() if words}


def test_the_repository_speaks_of_the_project_only() -> None:
    texts = [path for path in FILES if path.suffix in TEXT_SUFFIXES]
    found = {name_of(path): [word for word in FOREIGN_WORDS if word in text_of(path)] for path in texts}
    assert not {name: words for name, words in found.items() if words}


def test_only_one_boundary_per_process_catches_everything() -> None:
    """`except Exception` hides bugs; a comment on its line gives the reason for each use."""
    for path in CODE:
        for number, line in enumerate(text_of(path).splitlines(), 1):
            if re.search(r"except Exception\b", line):
                assert "  # " in line, f"{name_of(path)}:{number} catches everything without a reason"


def test_every_test_module_has_a_unique_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), "pytest cannot import two modules with the same name"
