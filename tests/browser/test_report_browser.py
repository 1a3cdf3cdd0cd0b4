"""The report in a headless Chromium: no console error, sorting works, nothing overflows, text legible in both themes.

Driven through the DevTools protocol over a pipe (``--remote-debugging-pipe``), so that no driver and no websocket
package is needed. Without a chromium the tests are quarantined (tests/QUARANTINE.md).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; see tests/QUARANTINE.md"),
]
PATIENCE = float(os.environ.get("BROWSER_PATIENCE", "120"))
"""Seconds that one answer of the browser may take; a busy machine needs many."""
WIDTHS = (390, 1280)
PRINTED = 1047


class Browser:
    """One page of a headless Chromium, spoken to through file descriptors 3 and 4."""

    def __init__(self, profile: Path) -> None:
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        assert CHROMIUM is not None

        def wire() -> None:
            # Chromium reads commands from descriptor 3 and writes answers to 4; keep both out of each other's way first
            spare = [os.dup(to_child), os.dup(from_child)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--remote-debugging-pipe", "--no-first-run", "--disable-extensions", "about:blank"]
        self._process = subprocess.Popen(
            [CHROMIUM, *options],
            preexec_fn=wire,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._write, self._read = from_parent, to_parent
        os.set_blocking(self._read, False)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self._call("Target.attachToTarget", {"targetId": page, "flatten": True}, session=None)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to the page."""
        return self._call(method, parameters, self._session)

    def open(self, path: Path, width: int, scheme: str = "light", media: str = "screen") -> None:
        """Load a file at a viewport width in a colour scheme, on screen or as it is printed."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        stop = time.monotonic() + PATIENCE
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            assert time.monotonic() < stop, "the page does not load"
            self._receive(0.05)

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """Console errors and exceptions since the page was opened."""
        out = []
        for event in self.events:
            parameters = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                out.append(str(parameters["exceptionDetails"]))
            if event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                out.append(str(parameters["args"]))
            if event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                out.append(str(parameters["entry"]))
        return out

    def close(self) -> None:
        """End the browser that this object started."""
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _call(self, method: str, parameters: Any = None, session: str | None = None) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        stop = time.monotonic() + PATIENCE
        while time.monotonic() < stop:
            for answer in self._receive(0.02):
                if answer.get("id") == number:
                    assert "error" not in answer, f"{method}: {answer['error']}"
                    result: dict[str, Any] = answer["result"]
                    return result
        raise AssertionError(f"{method}: no answer within {PATIENCE} s")

    def _receive(self, pause: float) -> list[dict[str, Any]]:
        try:
            self._buffer += os.read(self._read, 1 << 20)
        except BlockingIOError:
            time.sleep(pause)
        *whole, self._buffer = self._buffer.split(b"\0")
        messages = [json.loads(part) for part in whole]
        self.events += [m for m in messages if "method" in m]
        return messages


COMMITTED = Path(__file__).parents[2] / "reports" / "tiny-digits" / "report.html"


@pytest.fixture(scope="module", params=["synthetic", "embedded model"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports to look at: of a synthetic run with every kind of figure, and the embedded model's own.

    REPORT_HTML names another file in place of the second.
    """
    if request.param != "synthetic":
        return Path(os.environ.get("REPORT_HTML", COMMITTED)).resolve()
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "protocol"))
    import synthetic as syn

    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.report import write_report

    root = tmp_path_factory.mktemp("page")
    world = syn.World(items=12, controls=9, families=("layer", "any"), damage=True, betas=(1.0, 10.0, "hard"))
    world = replace(world, rows=(("all",), ("image",), ("question",)))
    writers = {"ncs": syn.write_ncs, "cers": syn.write_cers, "grid": syn.write_grid_ncs}
    folders = [write(root / name, world) for name, write in writers.items()]
    return write_report(load_evidence(folders), root / "report", 100).html


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_console_error_and_no_overflow(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.complaints() == []
    wide = browser.run("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], f"the page is {wide[0]} px wide in a window of {wide[1]} px"
    # tables may be wider, inside a box of their own that scrolls
    spilling = browser.run(
        """Array.from(document.querySelectorAll('body *')).filter(e => !e.closest('.scroll') && !e.closest('svg')
        && e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert spilling == []


TABLES = """Array.from(document.querySelectorAll('.scroll table')).map(t => [
  t.dataset.table, t.closest('.scroll').clientWidth, t.closest('.scroll').scrollWidth,
  Math.max(...Array.from(t.tBodies[0].rows, r => r.offsetHeight))])"""
"""Name, width of its box and of its content, height of its tallest row, of every table."""
LINES = 20 * 4
"""Pixels of four lines: what a row may take on any screen; lists in words (heads per layer, settings) may take more."""
WORDY = ("sets", "overlap", "checklist")


@pytest.mark.parametrize("width", [1200, 1280])
def test_no_table_is_cut_off_on_a_laptop(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert [t for t in browser.run(TABLES) if t[2] > t[1]] == []


@pytest.mark.parametrize("width", [390, 500, 1200])
def test_rows_stay_low(browser: Browser, page: Path, width: int) -> None:
    """A narrow screen scrolls a table sideways instead of squeezing its columns."""
    browser.open(page, width)
    tables = [t for t in browser.run(TABLES) if t[0] not in WORDY and not t[0].startswith("run-")]
    assert len(tables) > 5
    assert [t for t in tables if t[3] > LINES] == []


def test_printed_tables_fit_the_paper(browser: Browser, page: Path) -> None:
    """A4 across less 1 cm at each side, as the style sheet asks for: what a screen scrolls, paper would cut off."""
    browser.open(page, PRINTED, media="print")
    wide = browser.run(
        """Array.from(document.querySelectorAll('table, figure, p')).filter(
        e => e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert wide == []
    folded = browser.run(
        """Array.from(document.querySelectorAll('details:not([open]) > :not(summary)')).filter(
        e => e.textContent.trim() && (!e.checkVisibility({contentVisibilityAuto: true}) || !e.getClientRects().length)
        ).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert folded == []
    # ink on white whatever the reader's screen prefers
    browser.open(page, PRINTED, "dark", "print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run(CONTRAST) == []


def test_nothing_is_fetched(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    fetched = browser.run(
        "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:'))"
    )
    assert fetched == []


COLUMN = """(() => {
  const table = document.querySelector('table[data-table="main-ncs"]');
  return Array.from(table.tBodies[0].rows).map(r => Number(r.cells[%d].getAttribute('data-sort')));
})()"""
CLICK = (
    """document.querySelector('table[data-table="main-ncs"]').tHead.rows[0].cells[%d].querySelector('button').click()"""
)


@pytest.mark.parametrize("column", [2, 4])
def test_sorting_goes_both_ways(browser: Browser, page: Path, column: int) -> None:
    browser.open(page, 1280)
    before = browser.run(COLUMN % column)
    assert len(before) > 1
    browser.run(CLICK % column)
    assert browser.run(COLUMN % column) == sorted(before)
    browser.run(CLICK % column)
    assert browser.run(COLUMN % column) == sorted(before, reverse=True)
    state = browser.run(
        f"""document.querySelector('table[data-table="main-ncs"]').tHead.rows[0].cells[{column}].getAttribute('aria-sort')"""
    )
    assert state == "descending"


def test_headings_can_be_reached_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    assert browser.run("document.querySelector('th button').tabIndex") == 0


CONTRAST = r"""(() => {
  const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
  const light = v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const lum = c => .2126 * light(c[0]) + .7152 * light(c[1]) + .0722 * light(c[2]);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const out = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
    if (!text || ['SCRIPT', 'STYLE'].includes(e.tagName) || e.tagName === 'title') continue;
    const style = getComputedStyle(e);
    const ink = parse(e.closest('svg') ? style.fill : style.color);
    const a = lum(ink), b = lum(ground(e.closest('svg') ? e.closest('figure') : e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) out.push([ratio.toFixed(2), text.slice(0, 40), e.tagName, e.getAttribute('class')]);
  }
  return out;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(browser: Browser, page: Path, scheme: str) -> None:
    """WCAG AA: every text has a contrast of at least 4.5 to what is behind it."""
    browser.open(page, 1280, scheme)
    assert browser.run(CONTRAST) == []


def test_the_schemes_differ(browser: Browser, page: Path) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        browser.open(page, 1280, scheme)
        grounds.add(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_strange_names_are_text(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    assert browser.run("document.querySelectorAll('main script').length") == 0
    assert browser.complaints() == []


def test_screenshots(browser: Browser, page: Path, tmp_path: Path) -> None:
    """Pictures for a person to look at; BROWSER_SHOTS keeps them."""
    folder = Path(os.environ.get("BROWSER_SHOTS", str(tmp_path)))
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            browser.open(page, width, scheme)
            target = folder / f"{page.parent.name}-{width}-{scheme}.png"
            browser.screenshot(target)
            assert target.stat().st_size > 20_000
    browser.open(page, PRINTED, "dark", "print")
    browser.screenshot(folder / f"{page.parent.name}-print.png")
