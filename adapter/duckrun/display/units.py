"""Numbers in human-readable units."""

from __future__ import annotations

from pydantic import ByteSize


def readable_bytes(count: float, *, decimal: bool = False) -> str:
    """Return a number of bytes in a human-readable unit.

    Args:
        decimal: Use powers of 1000 instead of 1024.

    >>> readable_bytes(1536), readable_bytes(3_400_000_000, decimal=True)
    ('1.5 KiB', '3.4 GB')
    """
    return ByteSize(count).human_readable(decimal=decimal, separator=" ")
