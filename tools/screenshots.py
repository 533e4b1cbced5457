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

from playwright.sync_api import FloatRect, Page, sync_playwright

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
MARGIN, HEAD = 20, 110  # pixels
CORNERS = ("mart_routes", "flights_2013", "airline_months", "other_airports")
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


def graph(page: Page, url: str) -> FloatRect:
    """Show the whole lineage with every group open; return where it is on the page."""
    page.set_viewport_size({"width": 3600, "height": 3400})  # nodes that are drawn small have no icons
    page.goto(f"{url}/asset-groups")
    page.get_by_text("Global asset lineage").first.wait_for(timeout=90_000)
    page.wait_for_timeout(5_000)
    invitation = page.get_by_role("button", name="Skip")  # shown once by a new instance
    if invitation.is_visible():
        invitation.click()
    _show_kinds_alone(page)
    page.locator("foreignObject").first.wait_for(timeout=90_000)
    page.keyboard.press("Alt+e")
    page.wait_for_timeout(5_000)  # the layout settles
    # Zoom out until the whole graph is visible: nodes outside of the view are not in the page. The
    # wheel zooms with Control, and pans without.
    page.mouse.move(1800, 1700)
    page.keyboard.down("Control")
    while not _is_visible(page, shape := _shape(page)):
        page.mouse.wheel(0, 30)
        page.wait_for_timeout(500)
    page.keyboard.up("Control")
    page.wait_for_timeout(2_000)
    return shape


def _shape(page: Page) -> FloatRect:
    """Return the rectangle of all nodes and groups of the graph that are in the page."""
    boxes = [box for node in page.query_selector_all("foreignObject") if (box := node.bounding_box())]
    left, top = min(box["x"] for box in boxes) - MARGIN, min(box["y"] for box in boxes) - MARGIN
    right = max(box["x"] + box["width"] for box in boxes) + MARGIN
    bottom = max(box["y"] + box["height"] for box in boxes) + MARGIN
    return {"x": left, "y": top, "width": right - left, "height": bottom - top}


def _is_visible(page: Page, shape: FloatRect) -> bool:
    """True if the whole graph is between the page's head and its foot."""
    text, size = page.content(), page.viewport_size
    assert size is not None
    return all(name in text for name in CORNERS) and shape["y"] > HEAD and shape["y"] + shape["height"] < size["height"]


def _show_kinds_alone(page: Page) -> None:
    """Have the nodes of the graph show their status and kinds, and nothing else."""
    page.locator("button:has([aria-label='config'])").click()
    for facet in ("Sync status tags", "Asset checks", "Latest event", "Automation", "Partitions"):
        page.locator(".dagster-portal label").filter(has_text=facet).first.click()
    page.get_by_role("button", name="Save").click()
    page.wait_for_timeout(500)


def shown() -> str:
    """Return a hash of what the pictures show: assets, groups, kinds, arrows and descriptions."""
    from example_project.definitions import defs

    graph = defs.resolve_asset_graph()
    nodes = [graph.get(key) for key in sorted(graph.get_all_asset_keys())]
    facts = [
        [node.key.path, node.group_name, sorted(node.kinds), node.owners, node.description, node.is_partitioned]
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
        page.screenshot(path=folder / "asset_graph.png", clip=graph(page, url))
        page.set_viewport_size({"width": 1700, "height": 1250})
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
