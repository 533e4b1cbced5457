"""Figures as bars, in SVG that follows the reader's light or dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 760, 190, 90
BAR, GAP, BETWEEN, TOP = 16, 4, 18, 58
COLOURS = {"duckrun": "#2f6f8f", "duckrun, vectors": "#2f6f8f", "duckrun, copy": "#74a9c0"}
OTHERS = ("#8a8a8a", "#a9a9a9", "#c2c2c2", "#d6d6d6")

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .soft { fill: #57606a; font-size: 12px }
  line { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .soft { fill: #9198a1 } line { stroke: #3d444d } }
"""


@dataclass(frozen=True)
class Group:
    """Bars that stand together: a name, and a value for each side."""

    name: str
    values: Mapping[str, float]


def bars(title: str, unit: str, groups: Sequence[Group]) -> str:
    """Horizontal bars from zero, each with its value. A value of another size than the others makes these short: no axis is cut."""
    longest = max(value for group in groups for value in group.values.values())
    sides = list(dict.fromkeys(side for group in groups for side in group.values))
    grey = [side for side in sides if side not in COLOURS]
    colours = {**COLOURS, **{side: OTHERS[n % len(OTHERS)] for n, side in enumerate(grey)}}
    y = TOP
    parts = []
    for group in groups:
        parts.append(_text(0, y + BAR - 4, group.name, "soft"))
        for side, value in group.values.items():
            length = max(1.0, (WIDTH - LEFT - RIGHT) * value / longest)
            parts.append(_text(LEFT - 8, y + BAR - 4, side, anchor="end"))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colours[side]}"/>')
            parts.append(_text(LEFT + length + 6, y + BAR - 4, _short(value), "soft"))
            y += BAR + GAP
        y += BETWEEN
    height = y
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{STYLE}</style>\n"
        f"{_text(0, 18, title, 'title')}\n{_text(0, 38, f'{unit}; shorter is better', 'soft')}\n"
        f'<line x1="{LEFT}" y1="{TOP - 6}" x2="{LEFT}" y2="{height - BETWEEN}"/>\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    cls = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{cls}>{escape(words)}</text>'


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
