"""Reasons of refusals by deltalake and its kernel, where only the text of its error tells them."""

from __future__ import annotations

import re

from duckrun.sql.refusals import Refusal


class DeltalakeRefusal(Refusal):
    """Reasons of deltalake, which has one class for many errors.

    Read from deltalake 1.6.6: https://github.com/delta-io/delta-rs/tree/python-v1.6.6/crates
    """

    APPEND_ONLY = r"append-only"
    """A commit that removes rows from an append-only table (core/src/kernel/transaction/mod.rs)."""
    LACKS_MEMORY = r"Resources exhausted"
    """DataFusion's memory pool is full: ``DataFusionError::ResourcesExhausted``."""
    LOST_CHECKPOINT = r"_last_checkpoint hint"
    """``_last_checkpoint`` names a missing checkpoint (delta-kernel-rs, log_segment.rs)."""
    NO_VERSION = r"(?i)version"
    """The log cannot give a version (core/src/errors.rs, or the kernel's log segment)."""


# Messages of Delta Kernel, which opens every snapshot, about tables that it cannot read.
_REFUSALS = (
    (re.compile(r"Feature '([^']+)' is not supported"), "table feature {}"),
    (re.compile(r"(catalog)-managed table"), "table feature catalogManaged"),
    (re.compile(r"Unsupported minimum reader version (\d+)"), "protocol's reader version {}"),
)


def refused_feature(error: str) -> str | None:
    """Return the feature that prevented a table from being opened; None for another error.

    >>> refused_feature("Kernel error: Unsupported: Feature 'geospatial' is not supported")
    'table feature geospatial'
    """
    for pattern, words in _REFUSALS:
        if match := pattern.search(error):
            return words.format(match[1])
    return f"table feature of this error ({error.rstrip('.')})" if "feature" in error.lower() else None
