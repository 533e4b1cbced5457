"""Numbers in human-readable units."""

from __future__ import annotations

import re

from pydantic import ByteSize

from duckrun.errors import InvalidConfig

_SIZE = re.compile(r"\s*(\d*\.?\d+)\s*(\w*)\s*")
_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgtpe", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtpe", 1)}


def readable_bytes(count: float, *, decimal: bool = False) -> str:
    """Return a number of bytes in a human-readable unit.

    Args:
        decimal: Use powers of 1000 instead of 1024.

    >>> readable_bytes(1536), readable_bytes(3_400_000_000, decimal=True)
    ('1.5 KiB', '3.4 GB')
    """
    return ByteSize(count).human_readable(decimal=decimal, separator=" ")


def parse_bytes(size: str | int) -> int:
    """Return ``"2GB"``, ``"512 MiB"`` or a number as bytes.

    Raises:
        InvalidConfig: The text is no memory size.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        parsed = 0 if match is None else int(float(match[1]) * _UNITS.get(match[2].lower(), 0))
    else:
        parsed = 0 if isinstance(size, bool) or not isinstance(size, int | float) else int(size)
    if parsed < 1:
        raise InvalidConfig(f"{size!r} is not a memory size; write for instance 2GB or 512MiB.")
    return parsed
