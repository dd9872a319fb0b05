"""Reports known vulnerabilities of pinned packages from the answer of `pip-audit --format json`.

`python -m tests.testkit.supply.audit <ANSWER` ends with 0 if all packages were checked and none is vulnerable. It ends
with 1 if one is. It ends with 3 if packages were not checked, because the index in use knows no vulnerabilities.
"""

import sys

import msgspec

CLEAN, VULNERABLE, NOT_CHECKED = 0, 1, 3


class Vulnerability(msgspec.Struct):
    """One known vulnerability, and the versions without it."""

    id: str
    fix_versions: list[str] = []


class Package(msgspec.Struct):
    """One package; `skip_reason` has the reason if it was not checked."""

    name: str
    version: str = ""
    vulns: list[Vulnerability] = []
    skip_reason: str = ""


class Answer(msgspec.Struct):
    """The answer of pip-audit."""

    dependencies: list[Package]


def judge(data: bytes) -> tuple[int, list[str]]:
    """The exit code, and the lines for the user."""
    try:
        packages = msgspec.json.decode(data, type=Answer).dependencies
    except msgspec.DecodeError:  # pip-audit failed before it could answer
        return NOT_CHECKED, ["pip-audit gave no answer, so nothing was checked: is there a package index?"]
    lines = [
        f"{each.name} {each.version}: {found.id}, mended in {', '.join(found.fix_versions) or 'no version yet'}"
        for each in packages
        for found in each.vulns
    ]
    skipped = [each for each in packages if each.skip_reason]
    checked = len(packages) - len(skipped)
    if lines:
        return VULNERABLE, lines
    if skipped or not packages:
        reason = skipped[0].skip_reason if skipped else "the list is empty"
        return NOT_CHECKED, [f"{len(skipped)} of {len(packages)} packages were not checked: {reason}"]
    return CLEAN, [f"{checked} packages checked, no known vulnerability"]


def main() -> int:
    """Print the result."""
    code, lines = judge(sys.stdin.buffer.read())
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
