"""Count what makes docstrings, comments and names hard to read, and hold the counts at a limit.

    python tools/prose.py            # exit 1 if a count is above its limit
    python tools/prose.py --list     # every place too

A count finds suspects; a person decides. Lower a limit when its count falls, and never raise one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("adapter", "duckrun_dagster", "example_project", "tools")
LIMITS = {"opener": 0, "phrase": 5, "sentence": 0, "name": 0, "line": 0, "docstring": 0}
"""Most places of each kind. The goal of each is 0."""
LONGEST_SENTENCE, LONGEST_LINE = 25, 120
"""In words and in characters."""
VAGUE = frozenset({"found", "asked", "given", "made", "said", "held", "told", "own", "kept"})
OPENER = re.compile(r"(?:What|Where|Whether|Which|Whose|That which|Of (?:all|each|which)|By (?:what|which))\b")
PHRASE = re.compile(
    r"\b(?:(?:by|for|from|in|of|upon|with) which|of (?:these|those) that|that (?:are|is|was) there"
    r"|none of it"
    r"|what (?:are|is|was|were) (?:asked|given|made|meant|said|there|told)"
    r"|none where|as (?:it|they) (?:are|is|was|were)\b"
    r"|(?:are|is|was) (?:asked|said|told) (?:by|for|of)|anew|aside|ours|has not\b|have not\b)",
    re.IGNORECASE,
)


class Place(NamedTuple):
    """A suspect in a file."""

    kind: str
    line: int
    text: str


def places_in(source: str) -> Iterator[Place]:
    """Yield the suspects of a Python file."""
    for node in ast.walk(ast.parse(source)):
        yield from _of_node(node)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _of_prose(token.string.lstrip("# "), token.start[0])
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > LONGEST_LINE:
            yield Place("line", number, f"{len(line)} characters")


def _of_node(node: ast.AST) -> Iterator[Place]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        line, docstring = getattr(node, "lineno", 1), ast.get_docstring(node)
        if docstring is not None:
            if OPENER.match(docstring):
                yield Place("opener", line, docstring.partition("\n")[0])
            yield from _of_prose(docstring, line)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield Place("docstring", line, f"class {node.name} has none")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
        yield Place("name", node.lineno, node.id)
    elif isinstance(node, ast.arg) and node.arg in VAGUE:
        yield Place("name", node.lineno, node.arg)


def _of_prose(text: str, line: int) -> Iterator[Place]:
    for match in PHRASE.finditer(text):
        yield Place("phrase", line, match.group())
    for sentence in _sentences(text):
        if len(sentence.split()) > LONGEST_SENTENCE:
            yield Place("sentence", line, f"{sentence[:80]}…")


def _sentences(text: str) -> Iterator[str]:
    """Split prose at the ends of its sentences.

    Code counts as one word, and an indented block as none.
    """
    text = re.sub(r"``[^`]*``|`[^`]*`", "code", text)
    for paragraph in re.split(r"\n\s*\n", text):
        if ">>>" not in paragraph and "::" not in paragraph and not re.match(r"\s{4}", paragraph):
            yield from re.split(r"(?<=[.!?;:])\s+", " ".join(paragraph.split()))


def above(places: Iterable[tuple[Path, Place]], limits: dict[str, int], shown: int) -> list[str]:
    """Return a message for each kind above its limit, with the first ``shown`` of its places."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in limits}
    for file, place in places:
        by_kind[place.kind].append(f"  {file}:{place.line}: {place.text}")
    return [
        "\n".join([f"{kind}: {len(lines)} places, at most {limits[kind]}", *lines[:shown]])
        for kind, lines in by_kind.items()
        if len(lines) > limits[kind]
    ]


def main(arguments: list[str]) -> int:
    """Check the tree. Returns the exit code."""
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    places = [(f.relative_to(ROOT), place) for f in files for place in places_in(f.read_text(encoding="utf-8"))]
    if "--list" in arguments:
        print("\n".join(above(places, dict.fromkeys(LIMITS, -1), len(places))))
        return 0
    messages = above(places, LIMITS, 20)
    for message in messages:
        print(message)
    if messages:
        print("prose: python tools/prose.py --list shows every place")
    return int(bool(messages))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
