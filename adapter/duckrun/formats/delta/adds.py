"""The add actions of a version, letter by letter, for what deltalake's list of files leaves out: vectors, ids of rows, tags.

Source: Delta protocol, Action Reconciliation, Checkpoints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duckrun.errors import UnsupportedFeature
from duckrun.formats.delta.log import LOG
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)$")


def adds_of(form: DeltaFormat, snapshot: Snapshot, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """The actions that added some live files, by their paths as the log spells them: from the commits, newest first, then from
    the newest checkpoint. Raises UnsupportedFeature where the log holds neither any more.
    """
    found: dict[str, dict[str, Any]] = {}
    oldest = snapshot.version + 1
    for commit in form.actions_back(snapshot.ref, snapshot.version):
        oldest = commit.version
        for add in commit.adds:
            if add["path"] in wanted:
                found.setdefault(add["path"], add)
        if len(found) == len(wanted):
            return found
    for add in _checkpoint(form, snapshot, oldest - 1, wanted - found.keys()):
        found.setdefault(add["path"], add)
    if len(found) < len(wanted):
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: the log does not hold the actions that added {len(wanted) - len(found)} of the files to remove, which "
            "have deletion vectors or ids of rows. Nothing was written. Run this with engine: spark."
        )
    return found


def _checkpoint(form: DeltaFormat, snapshot: Snapshot, least: int, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Some adds of the newest checkpoint that is no older than ``least`` and no newer than the snapshot."""
    store = form.storage.store_at(snapshot.ref.location)
    versions: dict[int, list[str]] = {}
    for key in form.storage.keys(snapshot.ref.location, LOG):
        match = _CHECKPOINT.search(key["path"])
        if match and max(least, 0) <= int(match[1]) <= snapshot.version:
            versions.setdefault(int(match[1]), []).append(key["path"])
    if not versions:
        return
    paths = versions[max(versions)]
    parts = [p for p in paths if re.search(r"\.checkpoint\.\d{10}\.", p)]
    single = [p for p in paths if p not in parts]
    for path in single[:1] or parts:
        raw = bytes(obstore.get(store, path if path.startswith(LOG) else f"{LOG}/{path}").bytes())
        for action in _actions(raw, path, wanted):
            if action.get("add"):
                yield action["add"]
            elif action.get("sidecar"):
                name = action["sidecar"]["path"]
                inner = bytes(obstore.get(store, f"{LOG}/_sidecars/{name}").bytes())
                yield from (held["add"] for held in _actions(inner, name, wanted) if held.get("add"))


def _actions(raw: bytes, path: str, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """The adds of some files, and the sidecars, of one file of a checkpoint."""
    if path.endswith(".json"):
        actions = (json.loads(line) for line in raw.splitlines() if line.strip())
        yield from (a for a in actions if "add" not in a or a["add"]["path"] in wanted)
        return
    file = pq.ParquetFile(pa.BufferReader(raw))
    columns = [name for name in ("add", "sidecar") if name in file.schema_arrow.names]
    for batch in file.iter_batches(columns=columns):
        keep = None
        for name in columns:
            paths = pc.struct_field(batch.column(name), "path")
            some = pc.is_in(paths, pa.array(sorted(wanted), paths.type)) if name == "add" else pc.is_valid(paths)
            keep = some if keep is None else pc.or_(keep, some)
        for row in batch.filter(keep).to_pylist() if keep is not None else ():
            add = row.get("add")
            if add is not None:  # a map comes as pairs
                row["add"] = {
                    key: dict(held) if key in ("partitionValues", "tags") else _present(held)
                    for key, held in add.items()
                    if held is not None
                }
            yield row


def _present(held: Any) -> Any:
    """A value of a checkpoint as a commit would have it: of a struct, the fields that are there."""
    return {key: inner for key, inner in held.items() if inner is not None} if isinstance(held, dict) else held
