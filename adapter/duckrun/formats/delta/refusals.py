"""Reasons of refusals by deltalake, where only the text of its error tells them."""

from __future__ import annotations

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
