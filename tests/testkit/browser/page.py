"""A page in Chromium. Controls are found as a user finds them, by their names, and used with keys and clicks."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.testkit.browser.devtools import DevTools, DevToolsError
from tests.testkit.clusters.cluster import wait_until

WAIT_S = 30.0
FIELDS = {"textbox", "searchbox", "spinbutton", "combobox", "checkbox"}
BUTTONS = {"button", "link", "DisclosureTriangle", "checkbox"}
_DOMAINS = ("Page", "Runtime", "Log", "DOM", "Accessibility")
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " "), "Escape": (27, ""), "Delete": (46, "")}
_SHIFT = 8


class Page:
    """One page with cookies of its own."""

    def __init__(self, devtools: DevTools, origin: str) -> None:
        """`origin` is `http://host:port`."""
        self._devtools = devtools
        self._origin = origin
        self._context = devtools.call("Target.createBrowserContext")["browserContextId"]
        target = devtools.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = devtools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in _DOMAINS:
            self.call(f"{domain}.enable")
        self.show()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools command for this page."""
        return self._devtools.call(method, self._session, **parameters)

    def close(self) -> None:
        """Close the page, and remove its cookies."""
        self._devtools.call("Target.disposeBrowserContext", browserContextId=self._context)

    def show(self, *, width: int = 1280, height: int = 800, scheme: str = "light") -> None:
        """Set the size of the window and the colour scheme of the user."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        # Without motion, a picture does not depend on its moment.
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, path: str) -> None:
        """Load a page of the origin, and wait until its scripts have run."""
        found = self.call("Page.navigate", url=self._origin + path)
        assert "errorText" not in found, f"{path}: {found['errorText']}"
        self.wait_for("location.href !== 'about:blank'", path)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, what: str) -> Any:
        """The value of an expression as soon as it is true in a complete page."""

        def found() -> Any:
            try:
                return self.evaluate(f"document.readyState === 'complete' && ({expression})")
            except DevToolsError:  # the page is being replaced
                return None

        return wait_until(found, WAIT_S, f"{what} at {self._place}")

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.wait_for(f"document.body.innerText.includes({json.dumps(text)})", f"the text {text!r}")

    @property
    def text(self) -> str:
        """The visible text."""
        return str(self.evaluate("document.body.innerText"))

    @property
    def heading(self) -> str:
        """The text of the main heading."""
        return str(self.evaluate("document.querySelector('h1').innerText"))

    @property
    def path(self) -> str:
        """The path and query of the address."""
        return str(self.evaluate("location.pathname + location.search"))

    def column(self, number: int = 1) -> list[str]:
        """The texts of a column of the first table, counted from 1."""
        cells = f"document.querySelector('table').querySelectorAll('tbody tr > :nth-child({number})')"
        return list(self.evaluate(f"[...{cells}].map(each => each.innerText.trim())"))

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that assistive technology sees, in the order of the page."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (each["role"]["value"], each.get("name", {}).get("value", "").strip())
            for each in nodes
            if not each["ignored"]
        ]

    def follow(self, name: str) -> None:
        """Click on a link or a button that leads to another page, and wait for that."""
        self.evaluate("window.isOld = true")
        self.click(name)
        self.wait_for("!window.isOld", f"the page after {name!r}")

    def click(self, name: str) -> None:
        """Click in the middle of the button, link or summary of this name."""
        node = self._control(name, BUTTONS)
        self.call("DOM.scrollIntoViewIfNeeded", backendNodeId=node)
        quad = self.call("DOM.getContentQuads", backendNodeId=node)["quads"][0]
        where = {"x": sum(quad[::2]) / 4, "y": sum(quad[1::2]) / 4, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def focus(self, name: str) -> None:
        """Give the focus to the control of this name."""
        self.call("DOM.focus", backendNodeId=self._control(name, FIELDS | BUTTONS))

    def fill(self, name: str, text: str) -> None:
        """Replace the text of a field."""
        self.call("DOM.focus", backendNodeId=self._control(name, FIELDS))
        self.evaluate("document.activeElement.select()")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.press("Delete")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        code, text = _KEYS[key]
        name = " " if key == "Space" else key
        given = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": _SHIFT if shift else 0}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, **given, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    @property
    def focused(self) -> str:
        """The name of the control that has the focus, "" if none has."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        for each in nodes:
            has_focus = any(
                found["name"] == "focused" and found["value"]["value"] for found in each.get("properties", [])
            )
            if has_focus and each["role"]["value"] != "RootWebArea":
                return str(each["name"]["value"])
        return ""

    def errors(self) -> list[str]:
        """Errors in the console of the browser since the last call: of scripts, of requests, of the content policy."""
        events = self._devtools.events.pop(self._session, [])
        return [text for event in events if (text := _error_of(event["method"], event["params"]))]

    def save_picture(self, path: Path, *, height_max: int) -> None:
        """Save the page, from its top to `height_max` or its end, as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height_max), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _control(self, name: str, roles: set[str]) -> int:
        """The backend node of the first control with this name."""

        def found() -> int | None:
            try:
                document = self.call("Runtime.evaluate", expression="document")["result"]["objectId"]
                nodes = self.call("Accessibility.queryAXTree", objectId=document, accessibleName=name)["nodes"]
            except DevToolsError:  # the page is being replaced
                return None
            fitting = [each for each in nodes if not each["ignored"] and each["role"]["value"] in roles]
            return int(fitting[0]["backendDOMNodeId"]) if fitting else None

        return int(wait_until(found, WAIT_S, f"a control with the name {name!r} at {self._place}"))

    @property
    def _place(self) -> str:
        """The address for the text of an error; it must not be an error itself."""
        try:
            return self.path
        except DevToolsError:
            return "a page that is being replaced"


def _error_of(method: str, event: dict[str, Any]) -> str:
    if method == "Runtime.exceptionThrown":
        return str(event["exceptionDetails"].get("exception", {}).get("description", event["exceptionDetails"]["text"]))
    if method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
        return " ".join(str(each.get("value", each.get("description", ""))) for each in event["args"])
    if method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
        return f"{event['entry']['text']} {event['entry'].get('url', '')}"
    return ""


@contextmanager
def opened_page(devtools: DevTools, origin: str) -> Iterator[Page]:
    """A new page, closed at the end."""
    page = Page(devtools, origin)
    try:
        yield page
    finally:
        page.close()
