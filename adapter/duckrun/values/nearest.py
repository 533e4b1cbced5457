"""Suggestions for misspelled words: one rule for names, keys and options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known words closest to one, nearest first, in any case; none if all are too far.

    >>> nearest("Appnd", ["append", "overwrite"])
    ['append']
    """
    spelled = {each.lower(): each for each in known}
    return [spelled[each] for each in difflib.get_close_matches(word.lower(), spelled, n=count, cutoff=cutoff)]


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """Return a sentence with the nearest known word, after a space; ``otherwise`` if none is near.

    >>> did_you_mean("appnd", ["append", "overwrite"])
    " Did you mean 'append'?"
    """
    near = nearest(word, known, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else otherwise
