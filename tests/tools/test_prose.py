"""The counts of hard prose that `make lint` holds."""

from __future__ import annotations

from pathlib import Path

from tools import prose

HARD = '''"""Where the rows of which one is asked lie."""


class Rows:
    def read(self, given: int) -> int:
        """Return one. {words}."""
        found = given  # what is there
        return found  # {long}
'''.format(words=" ".join(["w"] * 26), long="x" * 120)

PLAIN = '''"""Rows of a table."""


class Rows:
    """Rows of one file.

    ``what is there`` is code. A sentence ends here; another one begins.
    """

    def read(self, number: int) -> int:
        """Return the number of rows."""
        return number
'''


def test_each_kind_of_suspect_is_found_at_its_line() -> None:
    places = [(place.kind, place.line) for place in prose.places_in(HARD)]
    assert sorted(places) == [
        ("docstring", 4), ("line", 8), ("name", 5), ("name", 7), ("opener", 1), ("phrase", 1), ("phrase", 7), ("sentence", 5),
    ]  # fmt: skip


def test_plain_text_has_no_suspect() -> None:
    assert list(prose.places_in(PLAIN)) == [prose.Place("phrase", 4, "what is there")]


def test_a_count_above_its_limit_is_named_with_its_places() -> None:
    places = [(Path("a.py"), place) for place in prose.places_in(HARD)]
    assert prose.above(places, dict.fromkeys(prose.LIMITS, 2), 9) == []
    [message] = prose.above(places, {**dict.fromkeys(prose.LIMITS, 2), "name": 1}, 1)
    assert message == "name: 2 places, at most 1\n  a.py:5: given"
