"""Pictures of the console's pages for the documentation, of a cluster with the data of a small shop.

python -m tests.testkit.screenshots [--folder FOLDER] [PAGE ...]
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.testkit.browser.devtools import DevTools, running_chromium
from tests.testkit.browser.page import Page, opened_page
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.console import running_console, started_console
from tests.testkit.loads.shop import DELETED, OPEN_ID, Shop
from tests.testkit.servers.debian import pngquant

FOLDER = Path(__file__).parents[2] / "docs" / "img"
WAIT_S = 180.0
SPAN_S = 45.0  # rates and trends cover this time
BYTES_MAX = 60 * 1024
COLOURS = 128
PATHS = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "deleted-topics": "/deleted-topics",
    "messages": "/topics/orders/messages?filter=value.price+%3E+%60800%60&start=earliest&limit=16",
    "partition": "/topics/orders/partitions/3",
    "groups": "/groups",
    "group": "/groups/billing",
    "reset": "/groups/fraud-detection/reset?to=-100",
    "transactions": "/transactions",
    "transaction": f"/transactions/{OPEN_ID}",
    "clients": "/clients?q=consumer",
    "storage": "/storage",
    "security": "/security",
    "user": "/security/users/billing",
    "access": "/security/check?principal=User:billing&operation=read&resource_type=topic&name=orders",
    "cluster": "/cluster",
}
LOGIN = "login"  # of another console
DARK = ("overview", "messages", "group")
NARROW = ("overview", "groups", "messages")
COMMANDS = (
    ("user", "create", "billing"),
    ("user", "create", "warehouse"),
    ("acl", "add", "--principal", "User:billing", "--operation", "read", "--topic", "orders"),
    ("acl", "add", "--principal", "User:billing", "--operation", "read", "--group", "billing"),
    ("acl", "add", "--principal", "User:warehouse", "--operation", "write", "--topic", "shipments", "--prefixed"),
    ("acl", "add", "--principal", "User:*", "--operation", "delete", "--topic", "audit-log", "--deny"),
)


class Style(NamedTuple):
    """A window, and the end of the names of its pictures."""

    suffix: str
    width: int
    height_max: int
    scheme: str


LIGHT_STYLE = Style("", 1280, 860, "light")
DARK_STYLE = Style("-dark", 1280, 860, "dark")
NARROW_STYLE = Style("-narrow", 360, 1_000, "light")


def main() -> int:
    """Make the pictures of some pages anew, or of all."""
    parser = argparse.ArgumentParser(description="Make pictures of the console anew.")
    parser.add_argument("pages", metavar="PAGE", nargs="*", help="only these pages (all)")
    parser.add_argument("--folder", metavar="FOLDER", type=Path, default=FOLDER, help="where to (%(default)s)")
    parser.add_argument("--all-styles", action="store_true", help="each page in light, dark and narrow, to look at it")
    arguments = parser.parse_args()
    wanted = arguments.pages or [*PATHS, LOGIN]
    unknown = set(wanted) - {*PATHS, LOGIN}
    if unknown:
        parser.error(f"not among {', '.join(PATHS)}, {LOGIN}: {', '.join(sorted(unknown))}")
    arguments.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        given = ("--janitors", "1", "--compactors", "1", "--console-changes")
        cluster = stack.enter_context(running(Path(folder, "data"), *given))
        shop = stack.enter_context(_filled(cluster, Path(folder, "password")))
        devtools = stack.enter_context(running_chromium())
        page = stack.enter_context(opened_page(devtools, started_console(cluster)))
        wait_until(lambda: _span_s(cluster, shop) >= SPAN_S, WAIT_S, "rates and trends", poll_s=2.0)
        for name, path in PATHS.items():
            if name not in wanted:
                continue
            if name == "cluster":
                cluster.pause("janitor-1")
                stack.callback(cluster.resume, "janitor-1")
                page.open(path)
                page.wait_for_text("the process hangs")
            _picture(page, name, path, arguments.folder, is_in_all_styles=arguments.all_styles)
        if LOGIN in wanted:
            _login_picture(cluster, devtools, Path(folder, "client.properties"), arguments.folder)
    return 0


@contextlib.contextmanager
def _filled(cluster: Cluster, password: Path) -> Iterator[Shop]:
    """Data in all pages, and a load as long as the context is open."""
    shop = Shop(cluster.kafka)
    shop.fill()
    shop.delete_topic(DELETED)
    shop.subscribe("all-clients", "*", 5_000)
    password.write_text("a-password-of-the-pictures")
    for command in COMMANDS:
        given = ["--password-file", str(password)] if command[0] == "user" else []
        subprocess.run([*_cli(*command), *given, "--data", str(cluster.data)], check=True, stdout=subprocess.DEVNULL)
    members = (("billing", "orders", 3, "classic"), ("warehouse", "shipments", 2, "consumer"))
    with contextlib.ExitStack() as stack:
        for each in members:
            stack.enter_context(shop.members(*each))
        stack.enter_context(shop.transactions())
        demo = subprocess.Popen(_cli("demo", "--bootstrap", cluster.kafka), stdout=subprocess.DEVNULL)
        try:
            yield shop
        finally:
            demo.terminate()
            demo.wait(WAIT_S)


def _cli(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", *words]


def _span_s(cluster: Cluster, shop: Shop) -> float:
    """The time that rates cover; meanwhile the lag of a group grows."""
    shop.write("orders", 40)
    with urllib.request.urlopen(f"http://{cluster.http}/api/v1/overview", timeout=WAIT_S) as answer:
        return float(json.load(answer)["span_s"])


def _picture(page: Page, name: str, path: str, folder: Path, *, is_in_all_styles: bool) -> None:
    styles = [LIGHT_STYLE]
    styles += [DARK_STYLE] if is_in_all_styles or name in DARK else []
    styles += [NARROW_STYLE] if is_in_all_styles or name in NARROW else []
    for style in styles:
        page.show(width=style.width, height=600, scheme=style.scheme)
        page.open(path)
        _save(page, folder / f"console-{name}{style.suffix}.png", style.height_max)


def _save(page: Page, picture: Path, height_max: int) -> None:
    page.save_picture(picture, height_max=height_max)
    program, environment = pngquant()
    options = ["--force", "--strip", "--speed", "1", "--nofs", "--output", str(picture)]
    subprocess.run([program, *options, str(COLOURS), str(picture)], env=environment, check=True)
    size = picture.stat().st_size
    print(f"{picture.name} {size / 1024:.0f} KiB")
    assert size <= BYTES_MAX, f"{picture.name} is too large"


def _login_picture(cluster: Cluster, devtools: DevTools, settings: Path, folder: Path) -> None:
    settings.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n")
    with running_console(cluster, command_config=str(settings)) as origin, opened_page(devtools, origin) as page:
        page.show(height=600)
        page.open("/login")
        _save(page, folder / "console-login.png", LIGHT_STYLE.height_max)


if __name__ == "__main__":
    sys.exit(main())
