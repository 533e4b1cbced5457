"""Pages of docs that tests write: prose in lines of at most 100 characters, tables and code as they are."""

from __future__ import annotations

import re
import textwrap

_ITEM = re.compile(r"(- |\d+\. )")


def wrapped(text: str) -> str:
    """A page of Markdown whose paragraphs and items of lists are wrapped anew; wrapped twice, it is the same.

    >>> print(wrapped("One\\ntwo.\\n\\n- three\\n  four\\n| a |\\n"))
    One two.
    <BLANKLINE>
    - three four
    | a |
    <BLANKLINE>
    """
    lines: list[str] = []
    piece: list[str] = []
    code = False

    def flush() -> None:
        if piece:
            indent = "  " if _ITEM.match(piece[0]) else ""
            joined = " ".join(line.strip() for line in piece)
            lines.extend(
                textwrap.wrap(joined, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
            )
            piece.clear()

    for line in text.split("\n"):
        fence = line.startswith("```")
        if code or fence or not line.strip() or line.startswith(("|", "#", "<", "!")):
            flush()
            lines.append(line)
            code = code != fence
        else:
            if _ITEM.match(line):
                flush()
            piece.append(line)
    flush()
    return "\n".join(lines)
