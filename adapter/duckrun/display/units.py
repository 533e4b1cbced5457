"""Figures in units that people read."""

from __future__ import annotations

from pydantic import ByteSize


def readable_bytes(count: float, *, decimal: bool = False) -> str:
    """A number of bytes in a unit that people read; with ``decimal`` in powers of 1000.

    >>> readable_bytes(1536), readable_bytes(3_400_000_000, decimal=True)
    ('1.5 KiB', '3.4 GB')
    """
    return ByteSize(count).human_readable(decimal=decimal, separator=" ")
