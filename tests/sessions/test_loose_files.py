"""s.read.csv() and s.read.parquet(): the same rows and types on both engines as in plain Spark, or an error."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import InvalidConfig, SchemaMismatch, Session, StorageError, UnsupportedFeature

HEADER, TYPED = {"header": True}, {"header": True, "inferSchema": True}
Files = Mapping[str, str | bytes]
TEXTS: dict[str, tuple[str | bytes, dict[str, Any]]] = {
    "no header": ("id,name\n1,fig\n2,\n", {}),
    "header": ("id,name\n1,fig\n2,\n", HEADER),
    "quotes": ('id,t\n1,"a,b"\n2,""\n3,\n', HEADER),
    "doubled quotes": ('a,b\n"x""y",1\n', {**HEADER, "escape": '"'}),
    "another quote": ("a,b\n'x,y',1\n", {**HEADER, "quote": "'"}),
    "escaped quote": ('a,b\n"x\\"y",1\nx\\y,2\n', HEADER),
    "line break": ('a,b\n"x\ny",1\n', {**HEADER, "multiLine": True}),
    "separators": ("a;b\n1;x,y\n", {**HEADER, "sep": ";"}),
    "two separators": ("a||b\n1||x\n", {**HEADER, "delimiter": "||"}),
    "tab": ("a\tb\n1\tx\n", {**HEADER, "sep": "\t"}),
    "windows": ("a,b\r\n1,x\r\n", HEADER),
    "blank lines": ("a\n\nx\n\n\ny\n", HEADER),
    "short lines": ("a,b,c\n1,2\n3,4,5\n6\n", HEADER),
    "no comments": ("a\n#1\n2\n", HEADER),
    "spaces": ("a,b\n 1 , x \n", TYPED),
    "null value": ("a,b\nNA,1\nx,NA\n", {**TYPED, "nullValue": "NA"}),
    "names": ("a,a,,A\n1,2,3,4\n", HEADER),
    "umlauts": ("größe\nä\n", HEADER),
    "latin": ("a\né\n".encode("latin-1"), {**HEADER, "encoding": "ISO-8859-1"}),
    "mark": (b"\xef\xbb\xbfa,b\n1,2\n", HEADER),
    "only a header": ("a,b\n", TYPED),
    **{
        f"type of {values[0]} and {values[-1]}": ("a\n" + "".join(f"{value}\n" for value in values), TYPED)
        for values in (
            ("1", "-5"),
            ("1", "2147483648"),
            ("007", "+1"),
            ("1", "99999999999999999999"),
            ("1.5", "2"),
            ("1e3", "2"),
            ("NaN", "1.5", "Inf", "-Inf"),
            ("1_000", "2"),
            ("0x10", "2"),
            ("true", "FALSE"),
            ("t", "f"),
            ("yes", "no"),
            ("true", "1"),
            ("2026-01-02", "2026-02-03"),
            ("2026-01-02", "2026-02-30"),
            ("2026-01-02", "1"),
            ("01/02/2026", "01/03/2026"),
            ("2026-01-02 03:04:05", "2026-01-02 03:04:05.123456"),
            ("2026-01-02", "2026-01-02 03:04:05"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+02:00"),
            ("null", "1"),
        )
    },
    "late text": ("a\n" + "1\n" * 30_000 + "x\n", TYPED),
}
FOLDERS: dict[str, tuple[Files, str, dict[str, Any]]] = {
    "folder": ({"b.csv": "id,t\n1,x\n", "a.csv": "id,t\n2,y\n"}, "", HEADER),
    "types of all files": ({"a.csv": "id\n1\n", "b.csv": "id\nx\n"}, "", TYPED),
    "any ending": ({"part-0": "1\n", "b.txt": "2\n", "C.CSV": "3\n"}, "", {}),
    "hidden": ({"a.csv": "1\n", "_b.csv": "2\n", ".c.csv": "3\n", "_SUCCESS": ""}, "", {}),
    "compressed": ({"a.csv.gz": gzip.compress(b"1,x\n"), "b.csv": "2,y\n"}, "", {}),
    "star": ({"a1.csv": "1\n", "a2.csv": "2\n", "b.csv": "3\n"}, "a*.csv", {}),
    "set": ({"a1.csv": "1\n", "a2.csv": "2\n", "a3.csv": "3\n"}, "a[12].csv", {}),
    "alternatives": ({"x.csv": "1\n", "y.csv": "2\n", "z.csv": "3\n"}, "{x,y}.csv", {}),
    "nested": ({"a.csv": "1\n", "below/b.csv": "2\n"}, "", {}),
    "partitions": ({"p=1/a.csv": "id\n1\n", "p=2/a.csv": "id\n2\n"}, "", HEADER),
    "partitions of texts": ({"p=x y/a.csv": "id\n1\n", "p=__HIVE_DEFAULT_PARTITION__/a.csv": "id\n2\n"}, "", HEADER),
    "partitions of days": ({"d=2026-01-02/a.csv": "id\n1\n"}, "", HEADER),
    "two levels": ({"p=1/q=01/a.csv": "id\n1\n"}, "", HEADER),
    "one partition": ({"p=1/a.csv": "id\n1\n", "p=2/a.csv": "id\n2\n"}, "p=1", HEADER),
    "pattern of partitions": ({"p=1/a.csv": "id\n1\n", "p=2/a.csv": "id\n2\n"}, "p=*", HEADER),
    "hidden in a pattern": ({"a.csv": "1\n", "_b.csv": "2\n", ".c.csv": "3\n"}, "*.csv", {}),
    "hidden folder in a pattern": ({"x/a.csv": "1\n", "_y/b.csv": "2\n", "c.csv": "3\n"}, "*", {}),
    "files and folders in a pattern": ({"x/a.csv": "1\n", "x/below/b.csv": "2\n", "c.csv": "3\n"}, "*", {}),
    "files of folders": ({"x/a.csv": "1\n", "y/a.csv": "2\n", "y/b.csv": "3\n"}, "*/a.csv", {}),
    "levels of patterns": ({"p=1/q=2/a.csv": "1\n", "p=1/q=3/b.csv": "2\n", "p=2/q=2/a.csv": "3\n"}, "p=1/q=*", {}),
    "alternatives of folders": ({"x/a.csv": "1\n", "y/b.csv": "2\n", "z/c.csv": "3\n"}, "{x,y}", {}),
    "letter case": ({"A.csv": "1\n", "a.csv": "2\n"}, "a*.csv", {}),
    "not in a set": ({"a1.csv": "1\n", "a2.csv": "2\n"}, "a[^1].csv", {}),
    "hidden by its name": ({"_b.csv": "1\n", "a.csv": "2\n"}, "{_b,a}.csv", {}),
    "odd names": ({"a'b.csv": "1\n", "ü.csv": "2\n", "c%20d.csv": "3\n", "e#f.csv": "4\n", "g h.csv": "5\n"}, "", {}),
    "empty file": ({"a.csv": "", "b.csv": "id\n1\n"}, "", HEADER),
    "folder with a dot": ({"x.y/a.csv": "1\n"}, "x.y", {}),
}


def cases(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Write each case below a folder; yield its name, its path and its options."""
    for number, (name, (text, options)) in enumerate(TEXTS.items()):
        yield name, write(folder / f"text {number}", {"a.csv": text}, "a.csv"), options
    for number, (name, (files, path, options)) in enumerate(FOLDERS.items()):
        yield name, write(folder / f"folder {number}", files, path), options


def write(folder: Path, files: Files, path: str) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return f"{folder}/{path}".rstrip("/")


def seen(rows: pa.Table) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and types of the columns, and the rows in some order."""
    types = [(field.name, str(field.type).replace("large_", "")) for field in rows.schema]
    return types, sorted(map(repr, zip(*(column.to_pylist() for column in rows.columns), strict=True)))


@pytest.mark.spark
def test_csv_files_have_the_rows_and_types_of_plain_spark(
    duck: Session, root: Path, tmp_path: Path, spark: Any
) -> None:
    different = []
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark:
        for name, path, options in cases(tmp_path):
            wanted = seen(spark.read.options(**options).csv(path).toArrow())
            for session in (duck, on_spark):
                if (found := seen(session.read.csv(path, **options).toArrow())) != wanted:
                    different.append((name, session.engine.name, found, wanted))
    assert not different


def test_files_of_a_store_are_those_of_a_folder(
    duck: Session, tmp_path: Path, s3_bucket: Callable[[str], str], s3_options: dict[str, str]
) -> None:
    """A path, a folder or a pattern stands for the same files in a store as on a disk."""
    bucket, folder = s3_bucket("loose-files"), tmp_path / "raw"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    store = boto3.client("s3", endpoint_url=s3_options["AWS_ENDPOINT_URL"], **keys)
    written = list(cases(folder))
    for file in filter(Path.is_file, folder.rglob("*")):
        store.upload_file(str(file), "loose-files", str(file.relative_to(folder)))
    with duckrun.connect(f"{bucket}/lake", storage_options=s3_options) as session:
        for name, path, options in written:
            wanted = seen(duck.read.csv(path, **options).toArrow())
            assert seen(session.read.csv(path.replace(str(folder), bucket), **options).toArrow()) == wanted, name
        with pytest.raises(StorageError, match=r"read of s3://.*/nope.csv: there is no file"):
            session.read.csv(f"{bucket}/nope.csv")
        with pytest.raises(StorageError, match=r"read of s3://.*/nope/\*: there is no file"):
            session.read.csv(f"{bucket}/nope/*")


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "longer line": ("a,b\n1,2,3\n", HEADER, "Expected Number of Columns: 2 Found: 3"),
    "line break": (
        'a,b\n"x\ny",1\n',
        HEADER,
        "column 'a' has a line break in quotes, which needs the option multiLine",
    ),
    "doubled quotes": ('a,b\n"x""y",1\n', HEADER, "unterminated quote"),
    "escaped letter": ('a,b\n"x\\y",1\n', HEADER, "that escapes nothing. .*Set the option escape to"),
    "times": ("a\n03:04\n", TYPED, "column 'a' has times of day"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_lines_that_duckdb_reads_otherwise_than_spark_are_refused(duck: Session, tmp_path: Path, name: str) -> None:
    text, options, reason = REFUSED[name]
    path = write(tmp_path, {"a.csv": text}, "a.csv")
    with pytest.raises((InvalidConfig, UnsupportedFeature), match=f"read of {path}: .*{reason}"):
        duck.read.csv(path, **options).toArrow()


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_local_path_may_have_the_scheme_of_files(session: Session, tmp_path: Path, scheme: str) -> None:
    path = write(tmp_path / "raw", {"a b.csv": "1\n"}, "")
    for each in (path, f"{path}/a b.csv", f"{path}/a%20b.csv", f"{path}/a*.csv"):
        assert session.read.csv(scheme + each).toArrow().to_pylist() == [{"_c0": "1"}]


def test_a_path_without_files_says_so(duck: Session, tmp_path: Path) -> None:
    write(
        tmp_path, {"empty/_SUCCESS": "", "blank/a.csv": "\n\n", "mixed/p=1/a.csv": "1\n", "mixed/q=1/a.csv": "1\n"}, ""
    )
    for path in ("missing.csv", "m*.csv", "empty"):
        with pytest.raises(StorageError, match=f"read of .*{path.replace('*', '.')}: there is no file"):
            duck.read.csv(tmp_path / path)
    with pytest.raises(SchemaMismatch, match=r"read of .*blank: its files have no line"):
        duck.read.csv(tmp_path / "blank")
    with pytest.raises(SchemaMismatch, match=r"read of .*mixed: its folders name different columns: p, q"):
        duck.read.csv(tmp_path / "mixed")


def test_a_folder_of_parquet_files_has_the_columns_of_its_folders(session: Session, tmp_path: Path) -> None:
    for folder, number in (("p=1", 1), ("p=2", 2)):
        (tmp_path / "x.y" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), tmp_path / "x.y" / folder / "rows")
    rows = session.read.parquet(tmp_path / "x.y").toArrow()
    assert seen(rows) == ([("id", "int64"), ("p", "int32")], ["(1, 1)", "(2, 2)"])
    assert session.read.parquet(tmp_path / "x.y" / "p=2").toArrow().to_pylist() == [{"id": 2}]
