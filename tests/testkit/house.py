"""`make house`: measures the arrangement and the English of the code; `--json` for scripts.

It reads all files that git does not ignore. It reports only; `tests/test_tidy.py` and import-linter hold the limits.
"""

import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.testkit import prose

ROOT = Path(__file__).parents[2]
PATCHED_NAME = re.compile(r"[\"'.]_?[A-Z][A-Z0-9_]{3,}[\"']?$")
# Names with a leading underscore that their libraries document as public.
PUBLIC_NAMES = ("_asdict", "_exit", "_replace", "_set_running_loop")  # of named tuples, `os`, `asyncio.events`
PUBLIC_OWNERS = ("KafkaError",)  # of confluent_kafka: the codes of errors that the client itself finds
Graph = dict[str, set[str]]


def main() -> int:
    facts = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(facts, indent=2))
        return 0
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:{width}}  {value}")
    return 0


def measure() -> dict[str, str]:
    """Each figure under its name, in the order in which they are printed."""
    paths = _tracked("*.py", "*.md")
    sources = {path: (ROOT / path).read_text() for path in paths}
    code = {path: source for path, source in sources.items() if path.startswith(("libs/", "services/"))}
    code = {path: source for path, source in code.items() if path.endswith(".py")}
    tests = {path: source for path, source in sources.items() if path.startswith(("tests/", "benches/"))}
    tests = {path: source for path, source in tests.items() if path.endswith(".py")}
    graph = import_graph(code)
    pairs = mutual_packages(graph)
    circles = cycles(graph)
    return {
        "modules per package, largest five": ", ".join(f"{name} {count}" for name, count in largest_packages(code)[:5]),
        "mutual package pairs": f"{len(pairs)}  {'; '.join(' <-> '.join(pair) for pair in pairs[:8])}",
        "import cycles": f"{len(circles)}  {'; '.join(' '.join(circle) for circle in circles[:4])}",
        "function length p50 / p95 / max": _quantiles(_function_lengths(code.values())),
        "comment lines per 100 lines of core": f"{_comment_share(code):.1f}",
        "constants patched in tests and benches": str(sum(map(patched_constants, tests.values()))),
        "uses of unittest.mock": str(sum(map(mock_uses, tests.values()))),
        "private attributes read in tests": str(sum(map(private_reads, tests.values()))),
        **_prose_facts("product and pages", {p: s for p, s in sources.items() if p not in tests}),
        **_prose_facts("tests and benches", tests),
        "longest Markdown line": str(_longest_markdown_line(sources)),
    }


def import_graph(code: dict[str, str]) -> Graph:
    """Modules and the modules of this repository that each imports, type checking included."""
    modules = {_module_name(path): path for path in code}
    graph: Graph = {module: set() for module in modules}
    for module, path in modules.items():
        for node in ast.walk(ast.parse(code[path])):
            if isinstance(node, ast.Import):
                graph[module] |= {alias.name for alias in node.names if alias.name in modules}
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    target = full if full in modules else node.module
                    graph[module] |= {target} & modules.keys()
        graph[module].discard(module)
    return graph


def mutual_packages(graph: Graph) -> list[tuple[str, str]]:
    """Pairs of packages that import each other; a module beside packages counts as a package itself."""
    packages = {parent for module in graph for parent in _parents(module.rpartition(".")[0])}
    unit_of = {module: _unit(module, packages) for module in graph}
    arrows = {
        (unit_of[importer], unit_of[imported])
        for importer, targets in graph.items()
        for imported in targets
        if unit_of[importer] != unit_of[imported]
    }
    return sorted((one, other) for one, other in arrows if one < other and (other, one) in arrows)


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that reach each other by imports (strongly connected components of two or more)."""
    reach = {module: _reachable(graph, module) for module in graph}
    seen: set[str] = set()
    found = []
    for module in sorted(graph):
        circle = sorted(other for other in reach[module] if module in reach[other])
        if len(circle) > 1 and module not in seen:
            found.append(circle)
            seen.update(circle)
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += graph[module]
    return reached


def _module_name(path: str) -> str:
    inner = path.split("/src/", 1)[1].removesuffix(".py").removesuffix("/__init__")
    return inner.replace("/", ".")


def _parents(package: str) -> list[str]:
    """All packages above this one."""
    parent = package.rpartition(".")[0]
    return [parent, *_parents(parent)] if parent else []


def _unit(module: str, packages_with_packages: set[str]) -> str:
    parent = module.rpartition(".")[0]
    return module if parent in packages_with_packages or not parent else parent


def _tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({path for path in listed if path and (ROOT / path).is_file()})


def largest_packages(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Packages with the number of modules in them, the largest first."""
    return Counter(path.rpartition("/")[0].split("/src/")[-1] for path in paths).most_common()


def _function_lengths(sources: Iterable[str]) -> Iterator[int]:
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or 0) - node.lineno + 1


def _quantiles(values: Iterable[int]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "none"
    return f"{ordered[len(ordered) // 2]} / {ordered[len(ordered) * 95 // 100]} / {ordered[-1]}"


def _comment_share(code: dict[str, str]) -> float:
    """The lines of comments and docstrings, for each 100 lines of the state machine."""
    comments = lines = 0
    for source in (source for path, source in code.items() if "/core/" in path):
        lines += source.count("\n")
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments += sum(token.type == tokenize.COMMENT for token in tokens)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                comments += (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return 100 * comments / max(lines, 1)


@functools.lru_cache(maxsize=1)  # of the source that several rules read, one after another
def _nodes_of(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def patched_constants(source: str) -> int:
    """Assignments to a constant of another module: `setattr`, `mock.patch`, or `module.NAME = value`."""
    found = 0
    for node in _nodes_of(source):
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if function.endswith((".setattr", "setattr")) or "mock.patch" in function:
                found += any(PATCHED_NAME.search(ast.unparse(argument)) for argument in node.args[:2])
        elif isinstance(node, ast.Assign):
            found += any(
                isinstance(target, ast.Attribute)
                and re.fullmatch(r"[A-Z][A-Z0-9_]{3,}", target.attr) is not None
                and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
                for target in node.targets
            )
    return found


def mock_uses(source: str) -> int:
    """Uses of `unittest.mock`."""
    attributes = [node for node in _nodes_of(source) if isinstance(node, ast.Attribute)]
    return sum(ast.unparse(node.value).rpartition(".")[2] == "mock" for node in attributes)


def private_reads(source: str) -> int:
    """Attributes with a leading underscore of anything but `self`, `cls` and `super()`, and imports of such names."""
    found = 0
    for node in _nodes_of(source):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = ast.unparse(node.value)
            found += owner not in ("self", "cls", "super()") and owner not in PUBLIC_OWNERS
        elif isinstance(node, ast.ImportFrom):
            found += sum(_is_private(alias.name) for alias in node.names)
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_NAMES


def _prose_facts(name: str, sources: dict[str, str]) -> dict[str, str]:
    texts = [text for path, source in sources.items() for text in prose.texts_of(path, source)]
    lengths: dict[str, list[int]] = defaultdict(list)
    words = loose = 0
    for text in texts:
        for sentence in prose.sentences(text):
            length = prose.word_count(sentence)
            words += length
            loose += len(prose.loose_words(sentence))
            lengths["page" if text.place is prose.Place.PAGE else "code"].append(length)
    return {
        f"{name}: words": str(words),
        f"{name}: loose words per 1,000": f"{1000 * loose / max(words, 1):.1f}",
        f"{name}: sentence length p50 / p95 / max, pages": _quantiles(lengths["page"]),
        f"{name}: sentence length p50 / p95 / max, code": _quantiles(lengths["code"]),
    }


def _longest_markdown_line(sources: dict[str, str]) -> int:
    pages = {path: source for path, source in sources.items() if path.endswith(".md")}
    return max(len(line) for source in pages.values() for line in source.splitlines())


if __name__ == "__main__":
    raise SystemExit(main())
