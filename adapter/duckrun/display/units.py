"""Numbers in human-readable units."""

from __future__ import annotations

from pydantic import ByteSize

from duckrun.errors import InvalidConfig


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
    from pydantic import TypeAdapter, ValidationError  # deferred: most profiles set no limit

    try:
        parsed = 0 if isinstance(size, bool) else int(TypeAdapter(ByteSize).validate_python(size))
    except ValidationError:
        parsed = 0
    if parsed < 1:
        raise InvalidConfig(f"{size!r} is not a memory size; write for instance 2GB or 512MiB.")
    return parsed
