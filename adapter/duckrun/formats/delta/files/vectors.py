"""Deletion vectors: deleted rows of a data file, by row number in the file, from 0.

Source: Delta protocol, Deletion Vectors (Deletion Vector Descriptor Schema) and Deletion Vector
Format.
"""

from __future__ import annotations

import base64
import posixpath
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import obstore
from obstore.exceptions import BaseError as ObstoreError
from pyroaring import BitMap64

from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.adds import adds_in_order
from duckrun.storage.parallel import at_once
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef

_MAGIC = (1681511377).to_bytes(4, "little")
_VERSION = b"\x01"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _OF_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
"""Source: https://rfc.zeromq.org/spec/32 (Z85 writes five characters for four bytes)."""
_OF_A_UUID = 20


def read_vector(logs: LogAccess, ref: TableRef, descriptor: Mapping[str, Any] | None) -> BitMap64:
    """Return the rows that a descriptor deletes; none for None.

    Raises:
        UnsupportedFeature: The protocol does not know the kind of vector.
        StorageError: The vector is missing or damaged.
    """
    if descriptor is None:
        return BitMap64()
    path, size = str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
    where = vector_file(ref, descriptor)
    if where is None:
        data, where = _decoded(path)[:size], "its log"
    else:
        data = _in_file(logs, ref, where, int(descriptor.get("offset") or 0), size)
    if data[:4] != _MAGIC:
        raise StorageError(f"Table {ref}: the deletion vector in {where} is damaged: it does not begin as one")
    rows = BitMap64.deserialize(data[4:])
    if len(rows) != int(descriptor["cardinality"]):
        raise StorageError(
            f"Table {ref}: the deletion vector in {where} deletes {len(rows)} rows, and the log says "
            f"{descriptor['cardinality']}"
        )
    return rows


def deleted_of(logs: LogAccess, snapshot: Snapshot, files: Sequence[ScanFile]) -> dict[str, BitMap64]:
    """Return the deleted rows of files with deletion vectors, by file path.

    Raises like read_vector().
    """
    adds = adds_in_order(logs, snapshot, files)
    read = at_once(lambda add: read_vector(logs, snapshot.ref, add.get("deletionVector")), adds)
    return {file.path: rows for file, rows in zip(files, read, strict=True)}


def write_vectors(
    logs: LogAccess, ref: TableRef, vectors: Sequence[BitMap64], folder: str = ""
) -> list[dict[str, Any]]:
    """Write deletion vectors to one new file; return their descriptors in the same order.

    Args:
        logs: Logs of the lake.
        ref: The table.
        vectors: Rows that each vector deletes.
        folder: Folder of the file below the table's; its path is unchanged by URL encoding.
    """
    # Small vectors could be inline in the log, but VACUUM of delta-spark 4.4.0 fails on such a
    # table with a MatchError.
    descriptors: list[dict[str, Any]] = []
    name = uuid.uuid4()
    body = bytearray(_VERSION)
    for rows in vectors:
        rows.run_optimize()
        data = _MAGIC + rows.serialize()
        # A path before the 20 characters is the folder (Delta protocol, Deletion Vector Descriptor
        # Schema, pathOrInlineDv).
        path = folder + base64.b85encode(name.bytes).translate(_TO_Z85).decode()
        place = {"storageType": "u", "pathOrInlineDv": path, "offset": len(body)}
        descriptors.append({**place, "sizeInBytes": len(data), "cardinality": len(rows)})
        body += len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    if descriptors:
        logs.storage.put_new(ref.location, posixpath.join(folder, f"deletion_vector_{name}.bin"), bytes(body))
    return descriptors


def vector_file(ref: TableRef, descriptor: Mapping[str, Any]) -> str | None:
    """Return the path of a vector's file, absolute or relative to the table's folder.

    Returns:
        None if the vector is in the log.

    Raises:
        UnsupportedFeature: The protocol does not know the kind of vector.
    """
    kind, path = descriptor["storageType"], str(descriptor["pathOrInlineDv"])
    if kind not in ("u", "i", "p"):
        raise UnsupportedFeature(
            f"Table {ref} has a deletion vector of the kind {kind!r}, which is none of the protocol's (u, i, p)"
        )
    return None if kind == "i" else _relative(path) if kind == "u" else path


def _in_file(logs: LogAccess, ref: TableRef, path: str, offset: int, size: int) -> bytes:
    """Return a vector from a file, after a check of its size and checksum."""
    location, name = ref.location, path
    if path.startswith("/") or ":/" in path:
        location, name = posixpath.split(
            unquote(path.removeprefix("file://")) if path.startswith("file:") else unquote(path)
        )
    try:
        # The size is before the vector and the checksum after it, both big-endian.
        raw = bytes(obstore.get_range(logs.storage.store_at(location), name, start=offset, length=size + 8))
    except (FileNotFoundError, ObstoreError) as error:
        raise StorageError(
            f"Table {ref}: its deletion vectors in {path} cannot be read ({error}), so that which of its rows are "
            "deleted is not known",
            remedy="Restore an older version, whose files are there",
        ) from error
    data = raw[4 : 4 + size]
    if int.from_bytes(raw[:4], "big") != size or zlib.crc32(data) != int.from_bytes(raw[4 + size : 8 + size], "big"):
        raise StorageError(f"Table {ref}: the deletion vector at byte {offset} of {path} is damaged")
    return data


def _relative(path: str) -> str:
    folder, name = path[:-_OF_A_UUID], uuid.UUID(bytes=_decoded(path[-_OF_A_UUID:]))
    return posixpath.join(folder, f"deletion_vector_{name}.bin")


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_OF_Z85))
