"""Domain metadata of a table: configurations by systems and users, beside the table metadata.

Source: Delta protocol, Domain Metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from duckrun.formats.delta.definition.protocol import DOMAINS
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.checkpoints import checkpoint_actions, newest_checkpoint
from duckrun.formats.delta.versions.newest import state_of
from duckrun.values.snapshot import Snapshot


def domains_of(logs: LogAccess, snapshot: Snapshot) -> dict[str, str]:
    """Return the configuration of each domain of a version that was not removed."""
    if DOMAINS not in snapshot.writer_features:
        return {}
    known = state_of(snapshot)
    if known.domains is None:
        known.domains = _read(logs, snapshot)
    return dict(known.domains)


def _read(logs: LogAccess, snapshot: Snapshot) -> dict[str, str]:
    configurations: dict[str, str | None] = {}
    for action in _actions(logs, snapshot):
        # The newest action of a domain wins, and a removed one stays removed (Delta protocol,
        # Domain Metadata).
        configurations.setdefault(action["domain"], None if action.get("removed") else action["configuration"])
    return {domain: text for domain, text in configurations.items() if text is not None}


def _actions(logs: LogAccess, snapshot: Snapshot) -> Iterator[Mapping[str, Any]]:
    """Yield the domain actions, newest first: from commits, then from the newest checkpoint."""
    checkpoint, paths = newest_checkpoint(logs.storage, snapshot.ref, snapshot.version)
    for commit in logs.actions_back(snapshot.ref, snapshot.version):
        if commit.version <= checkpoint:
            break
        yield from reversed(commit.domains)
    yield from checkpoint_actions(logs.storage, snapshot.ref, paths, DOMAINS)


def action_of(domain: str, configuration: Mapping[str, Any] | str, *, removed: bool = False) -> dict[str, Any]:
    """Return the action that sets the configuration of a domain."""
    text = configuration if isinstance(configuration, str) else json.dumps(configuration, separators=(",", ":"))
    return {DOMAINS: {"domain": domain, "configuration": text, "removed": removed}}
