"""The known word that a misspelt one may have meant: one rule for names, keys and options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known words that are most like one, in whatever case, the nearest first; none where all are further off.

    >>> nearest("Appnd", ["append", "overwrite"])
    ['append']
    """
    spelled = {each.lower(): each for each in known}
    return [spelled[each] for each in difflib.get_close_matches(word.lower(), spelled, n=count, cutoff=cutoff)]


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """A sentence, after a space, with the nearest known word; ``otherwise`` where none is near.

    >>> did_you_mean("appnd", ["append", "overwrite"])
    " Did you mean 'append'?"
    """
    near = nearest(word, known, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else otherwise
