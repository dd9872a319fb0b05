"""An audit of a page for people with and without assistive technology."""

from pathlib import Path

from tests.testkit.browser.page import BUTTONS, FIELDS, Page

_SCRIPT = Path(__file__).with_suffix(".js")
_LANDMARKS = {"banner", "main", "contentinfo"}


def findings(page: Page) -> list[str]:
    """Everything on the open page that is hard to read, to reach or to understand."""
    found = [str(each) for each in page.evaluate(_SCRIPT.read_text())]
    tree = page.accessible()
    found += [f"a {role} has no name" for role, name in tree if role in FIELDS | BUTTONS and not name]
    missing = _LANDMARKS - {role for role, _ in tree}
    return found + [f"there is no {role}" for role in sorted(missing)]
