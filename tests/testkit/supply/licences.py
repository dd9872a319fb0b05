"""Lists the licence of each component in a software bill of materials (CycloneDX), as a table.

`python -m tests.testkit.supply.licences SBOM`: ends with 1 if a component names no licence.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

UNKNOWN = "unknown"
# Packages whose metadata has a licence only as free text.
BY_TEXT = {"multidict": "Apache-2.0"}


class License(msgspec.Struct):
    """One licence: an SPDX id, or a name."""

    id: str = ""
    name: str = ""


class Choice(msgspec.Struct):
    """A licence, or an SPDX expression."""

    license: License | None = None
    expression: str = ""


class Component(msgspec.Struct):
    """One package."""

    name: str
    version: str = ""
    licenses: list[Choice] = []


class Bill(msgspec.Struct):
    """The components of a bill."""

    components: list[Component] = []


def licences_of(component: Component) -> str:
    """The licences in one text, the shortest first: some packages repeat one as its whole text."""
    found = {
        choice.expression or (choice.license and (choice.license.id or choice.license.name)) or ""
        for choice in component.licenses
    }
    known = sorted((text for text in found if text and "\n" not in text), key=lambda text: (len(text), text))
    return known[0] if known else BY_TEXT.get(component.name, UNKNOWN)


def table(bill: Bill) -> dict[str, str]:
    """The licences of each component, by name and version."""
    return {
        f"{each.name} {each.version}": licences_of(each) for each in sorted(bill.components, key=lambda each: each.name)
    }


def as_text(found: Mapping[str, str]) -> str:
    """The table as Markdown."""
    rows = [f"| {name} | {licence} |" for name, licence in found.items()]
    return "\n".join(["| package | licence |", "|---|---|", *rows])


def main(path: str) -> int:
    """Print the table; 1 if a licence is unknown."""
    found = table(msgspec.json.decode(Path(path).read_bytes(), type=Bill))
    print(as_text(found))
    unknown = [name for name, licence in found.items() if licence == UNKNOWN]
    if unknown:
        print(f"no licence is named by {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
