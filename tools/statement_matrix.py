"""Write the statement matrix of docs/sql.md from the cases of tests/statements/test_matrix.py.

python tools/statement_matrix.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "sql.md"
BEGIN, END = "<!-- matrix: written by tools/statement_matrix.py -->\n", "<!-- end of matrix -->"


def with_matrix(text: str, matrix: str) -> str:
    """Return the page with another matrix between its two marks.

    Raises:
        ValueError: The page has no such marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the matrix: {BEGIN.strip()} … {END}")
    return before + BEGIN + matrix + END + after


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.statements.cases import matrix

    PAGE.write_text(with_matrix(PAGE.read_text(encoding="utf-8"), matrix()), encoding="utf-8")


if __name__ == "__main__":
    main()
