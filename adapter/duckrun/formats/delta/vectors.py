"""Deletion vectors: the rows of a data file that are deleted, by their numbers in the file, counted from 0.

Source: Delta protocol, Deletion Vectors (Deletion Vector Descriptor Schema) and Deletion Vector Format.
"""

from __future__ import annotations

import base64
import json
import posixpath
import uuid
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import obstore
from obstore.exceptions import BaseError as ObstoreError
from pyroaring import BitMap64

from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.delta.adds import adds_of
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

_MAGIC = (1681511377).to_bytes(4, "little")
_VERSION = b"\x01"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _OF_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
_OF_A_UUID = 20
_AT_ONCE = 16


def read_vector(form: DeltaFormat, ref: TableRef, descriptor: Mapping[str, Any] | None) -> BitMap64:
    """The rows that a descriptor deletes; none without one.

    Raises UnsupportedFeature for a kind of vector that the protocol does not know, StorageError for one that is gone or damaged.
    """
    if descriptor is None:
        return BitMap64()
    said, size = str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
    where = vector_file(ref, descriptor)
    if where is None:
        data, where = _decoded(said)[:size], "its log"
    else:
        data = _in_file(form, ref, where, int(descriptor.get("offset") or 0), size)
    if data[:4] != _MAGIC:
        raise StorageError(
            f"Table {ref}: the deletion vector in {where} is damaged: it does not begin as one. Nothing was written."
        )
    rows = BitMap64.deserialize(data[4:])
    if len(rows) != int(descriptor["cardinality"]):
        raise StorageError(
            f"Table {ref}: the deletion vector in {where} deletes {len(rows)} rows, and the log says {descriptor['cardinality']}. "
            "Nothing was written."
        )
    return rows


def deleted_of(form: DeltaFormat, snapshot: Snapshot, files: Sequence[ScanFile]) -> dict[str, BitMap64]:
    """The rows that are deleted of some files with vectors, by the paths of these. Raises as read_vector() does."""
    adds = adds_of(form, snapshot, {file.spelled or file.path for file in files})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(
            lambda file: read_vector(form, snapshot.ref, adds[file.spelled or file.path].get("deletionVector")), files
        )
        return {file.path: rows for file, rows in zip(files, found, strict=True)}


def write_vectors(form: DeltaFormat, ref: TableRef, vectors: Sequence[BitMap64]) -> list[dict[str, Any]]:
    """Descriptors of some vectors, in their order; they lie in one new file.

    Small ones could stand in the log itself, but a vacuum by delta-spark 4.4.0 ends at such a table with a MatchError.
    """
    found: list[dict[str, Any]] = []
    name = uuid.uuid4()
    body = bytearray(_VERSION)
    for rows in vectors:
        rows.run_optimize()
        data = _MAGIC + rows.serialize()
        place = {"storageType": "u", "pathOrInlineDv": _encoded(name.bytes), "offset": len(body)}
        found.append({**place, "sizeInBytes": len(data), "cardinality": len(rows)})
        body += len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    if found:
        form.storage.put_new(ref.location, f"deletion_vector_{name}.bin", bytes(body))
    return found


def vector_file(ref: TableRef, descriptor: Mapping[str, Any]) -> str | None:
    """The file that holds a vector, as a path below the table's folder or an absolute one; None for a vector in the log.

    Raises UnsupportedFeature for a kind of vector that the protocol does not know.
    """
    kind, said = descriptor["storageType"], str(descriptor["pathOrInlineDv"])
    if kind not in ("u", "i", "p"):
        raise UnsupportedFeature(
            f"Table {ref} has a deletion vector of the kind {kind!r}, which is none of the protocol's (u, i, p). Nothing was written or "
            "removed."
        )
    return None if kind == "i" else _relative(said) if kind == "u" else said


def marked_statistics(stats: str | None, rows: int | None) -> str:
    """The statistics of a file once rows of it are deleted: bounds still hold, but no row need have them. ``rows`` are those of
    the file where it has no others: a file with a vector tells how many there are.

    Source: Delta protocol, Per-file Statistics (numRecords, tightBounds).
    """
    found = {"numRecords": rows} if stats is None else json.loads(stats)
    return json.dumps({**found, "tightBounds": False}, ensure_ascii=False)


def _in_file(form: DeltaFormat, ref: TableRef, path: str, offset: int, size: int) -> bytes:
    """A vector out of a file: its size and its checksum stand around it, big-endian."""
    location, name = ref.location, path
    if path.startswith("/") or ":/" in path:
        location, name = posixpath.split(
            unquote(path.removeprefix("file://")) if path.startswith("file:") else unquote(path)
        )
    try:
        held = bytes(obstore.get_range(form.storage.store_at(location), name, start=offset, length=size + 8))
    except (FileNotFoundError, ObstoreError) as error:
        raise StorageError(
            f"Table {ref}: its deletion vectors in {path} cannot be read ({error}), so that which of its rows are deleted is not known. "
            "Nothing was written. Restore an older version, whose files are there."
        ) from error
    data = held[4 : 4 + size]
    if int.from_bytes(held[:4], "big") != size or zlib.crc32(data) != int.from_bytes(held[4 + size : 8 + size], "big"):
        raise StorageError(
            f"Table {ref}: the deletion vector at byte {offset} of {path} is damaged. Nothing was written."
        )
    return data


def _relative(said: str) -> str:
    folder, name = said[:-_OF_A_UUID], uuid.UUID(bytes=_decoded(said[-_OF_A_UUID:]))
    return posixpath.join(folder, f"deletion_vector_{name}.bin")


def _encoded(data: bytes) -> str:
    """Z85, which has five letters for four bytes. Source: https://rfc.zeromq.org/spec/32"""
    return base64.b85encode(data).translate(_TO_Z85).decode()


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_OF_Z85))
