"""The table of docs/operating/monitoring.md: every alert with its severity and its page."""

import re
from pathlib import PurePath

from tests.testkit.docs.blocks import Maker, table
from tests.testkit.monitoring import Alert, alerts


def makers() -> dict[str, Maker]:
    """The block `alerts`."""
    return {"alerts": lambda: table(["alert", "severity", "meaning", "page"], [_row(each) for each in alerts()])}


def _row(alert: Alert) -> list[str]:
    meaning = re.sub(r"\{\{ \$(?:labels\.)?(\w+).*?\}\}", r"`\1`", alert.annotations["summary"])
    page = PurePath(alert.annotations["runbook_url"])
    return [f"`{alert.name}`", alert.severity, meaning, f"[{page.stem}](runbooks/{page.name})"]
