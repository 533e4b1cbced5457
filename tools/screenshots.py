"""Pictures of the example in Dagster's page, for README and docs: `make images` after `make demo`.

    python tools/screenshots.py docs/images
    python tools/screenshots.py --check docs/images     # are they older than the example's graph?

Starts `dagster dev` on the example, drives Chromium (Debian's, or the one that CHROMIUM names), and
stops both. The file `shown.txt` beside the pictures has a hash of what they show.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tools.dagster_server import serving

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

SHOWN = "shown.txt"
CORNERS = ("fct_flights", "mart_routes", "flights_2013", "airline_months", "other_airports")
"""Assets at all sides of the example's graph."""


def chromium() -> str:
    """Return the browser to drive. Playwright's own is not downloaded."""
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        raise SystemExit("No Chromium: apt-get install chromium, or set CHROMIUM to a browser's path.")
    return browser


@contextmanager
def dagster_dev() -> Iterator[str]:
    """Serve the example's graph on loopback; ends with all its child processes."""
    with serving([sys.executable, "-m", "example_project", "ui"]) as (_, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def browser_page() -> Iterator[Page]:
    """Yield a page of a headless Chromium."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 2200, "height": 1320}, device_scale_factor=1)
        yield page
        browser.close()


def graph(page: Page, url: str) -> None:
    """Show the whole lineage, with every group open."""
    page.goto(f"{url}/asset-groups")
    page.get_by_text("Global asset lineage").first.wait_for(timeout=90_000)
    page.wait_for_timeout(5_000)
    invitation = page.get_by_role("button", name="Skip")  # shown once by a new instance
    if invitation.is_visible():
        invitation.click()
    page.get_by_text("Hide navigation").click()
    page.keyboard.press("Alt+e")
    page.wait_for_timeout(5_000)  # the layout settles
    # Zoom out until the whole graph is visible: nodes outside of the view are not in the page. The
    # wheel zooms with Control, and pans without.
    page.mouse.move(1300, 700)
    page.keyboard.down("Control")
    for _ in range(12):
        shown = page.content()
        if all(name in shown for name in CORNERS):
            break
        page.mouse.wheel(0, 60)
        page.wait_for_timeout(500)
    page.keyboard.up("Control")
    page.get_by_text("fct_flights").first.wait_for(timeout=60_000)
    page.wait_for_timeout(2_000)


def shown() -> str:
    """Return a hash of what the pictures show: assets, groups, kinds, arrows and descriptions."""
    from example_project.definitions import defs

    graph = defs.resolve_asset_graph()
    nodes = [graph.get(key) for key in sorted(graph.get_all_asset_keys())]
    facts = [
        [node.key.path, node.group_name, sorted(node.kinds), node.description, node.is_partitioned]
        + [sorted(parent.to_user_string() for parent in node.parent_keys)]
        for node in nodes
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def check(folder: Path) -> int:
    """Return 1, with a sentence on standard error, if the pictures show another graph."""
    if (folder / SHOWN).read_text(encoding="utf-8").strip() == shown():
        return 0
    print(
        f"{folder}: the example's graph has changed since the pictures were taken. Run `make images`.", file=sys.stderr
    )
    return 1


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with dagster_dev() as url, browser_page() as page:
        graph(page, url)
        page.screenshot(path=folder / "asset_graph.png")
        page.goto(f"{url}/assets/marts/fct_flights")
        page.get_by_text("Row count").first.wait_for(timeout=60_000)
        page.wait_for_timeout(3_000)
        page.screenshot(path=folder / "asset_page.png")
    (folder / SHOWN).write_text(shown() + "\n", encoding="utf-8")
    print(f"wrote {folder}/asset_graph.png and {folder}/asset_page.png")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(check(Path(sys.argv[2])))
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
