"""Vacuum removes what Spark's and deltalake's would, keeps what a version in retention needs, and knows what they do not."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import DeleteSpec, PurgeSpec, RestoreSpec, Session, VacuumSpec, WriteSpec
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.delta.definition.retention import milliseconds
from tests.formats.test_vectors import IN_THE_LOG
from tests.lake import rows_of

DAY = 24 * 3600
PARTS = ("a b", "x/y", "50%", "ü=1", "_c")


def rows(rng: random.Random, count: int = 200) -> pa.Table:
    ids = [rng.randrange(10_000) for _ in range(count)]
    return pa.table({"id": pa.array(ids, pa.int64()), "p": [PARTS[n % len(PARTS)] for n in ids]})


def log(location: Path) -> list[Path]:
    return sorted((location / "_delta_log").glob("*.json"))


def spread_over_days(location: Path, first: int, last: int) -> None:
    """As if the commits from ``first`` on had been made one a day, the newest ``last`` days ago: the log and its files say so."""
    commits = [path for path in log(location) if int(path.stem) >= first]
    for days, commit in enumerate(reversed(commits), last):
        moment = time.time() - days * DAY - DAY / 2
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = int(moment * 1000)
        commit.write_text("\n".join(map(json.dumps, actions)))
        os.utime(commit, (moment, moment))
    for checksum in (location / "_delta_log").glob("*.crc"):
        checksum.unlink()


def old_files(location: Path, days: float) -> None:
    """All files of a table, but for its log, are as old as this."""
    moment = time.time() - days * DAY
    for path in location.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            os.utime(path, (moment, moment))


def listed(session: Session, name: str, days: float) -> set[str]:
    spec = VacuumSpec(retention_hours=days * 24, dry_run=True, enforce_retention=False)
    return set(session.execute(name, spec).removed)


def listed_by_spark(spark: Any, location: Path, days: float) -> set[str]:
    """Spark takes how long from the table's property: of what a statement says only 0 counts (delta-spark 4.4.0)."""
    said = f"'delta.deletedFileRetentionDuration' = 'interval {days} days'"
    spark.sql(f"ALTER TABLE delta.`{location}` SET TBLPROPERTIES ({said})")
    found = spark.sql(f"VACUUM delta.`{location}` RETAIN {days * 24} HOURS DRY RUN").collect()
    return {str(row[0]).partition(f"{location}/")[2] for row in found}


def change(session: Session, rng: random.Random, marking: bool) -> None:
    """One commit of some kind."""
    newest = session.table("t").snapshot().version
    low = rng.randrange(9000)
    mode = "deletion_vectors" if marking else "copy_on_write"
    match rng.randrange(6):
        case 0:
            session.execute("t", WriteSpec("append"), rows(rng))
        case 1 | 2 | 3:
            session.execute("t", DeleteSpec(f"id BETWEEN {low} AND {low + rng.choice((30, 2000))}", merge_mode=mode))
        case 4:
            session.table("t").optimize().executeCompaction()
        case 5:
            session.execute("t", RestoreSpec(version=rng.randrange(max(0, newest - 3), newest + 1)))


def aged(duck: Session, rng: random.Random, location: Path, marking: bool) -> int:
    """Make a table of some weeks, with strays in its folder, and return the version of its checkpoint."""
    # Checkpoints drop removes older than the table's retention, and others then remove too much where more is asked for.
    kept_long = {"delta.deletedFileRetentionDuration": "interval 60 days"}
    duck.execute("t", WriteSpec("overwrite", partition_by=("p",), table_properties=kept_long), rows(rng, 500))
    for _ in range(8):
        change(duck, rng, marking)
    spread_over_days(location, 0, 8)
    middle = int(log(location)[-1].stem)
    duck.table("t").checkpoint()
    for _ in range(4):
        change(duck, rng, marking)
    spread_over_days(location, middle + 1, 1)
    old_files(location, 40)
    for stray, age in (
        ("part-stray.parquet", 3),
        ("_change_data/cdc.parquet", 5),
        ("_mine/x", 50),
        ("p=50%25/new", 0.1),
    ):
        (location / stray).parent.mkdir(exist_ok=True)
        (location / stray).write_bytes(b"stray")
        os.utime(location / stray, (time.time() - age * DAY,) * 2)
    return middle


@pytest.mark.parametrize("marking", [False, True], ids=["copied", "marked"])
@pytest.mark.drawn(2)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_listed_is_what_deltalake_lists_and_versions_in_retention_stay(
    duck: Session, root: Path, marking: bool, seed: int
) -> None:
    middle = aged(duck, random.Random(seed), location := root / "main" / "t", marking)
    copied = root / "main" / "copied"  # at a place that no session remembers
    shutil.copytree(location, copied)
    if not marking:  # deltalake's takes the files of vectors for strays
        table, found, theirs = DeltaTable(copied), {}, {}
        for days in (0, 1, 4, 9, 14, 30):
            found[days] = listed(duck, "copied", days)
            theirs[days] = set(table.vacuum(days * 24, dry_run=True, enforce_retention_duration=False, full=True))
        assert {days: sorted(found[days] ^ theirs[days])[:4] for days in found if found[days] != theirs[days]} == {}
        assert len(found[0]) > len(found[9]) > 0
    versions = range(middle, duck.table("t").snapshot().version + 1)  # each of them younger than the retention
    before = [sorted(rows_of(duck.table("t").toDF(version=version))) for version in versions]
    removed = duck.execute("copied", VacuumSpec(retention_hours=8.75 * 24, enforce_retention=False)).removed
    assert not any((copied / path).exists() for path in removed)
    assert [sorted(rows_of(duck.table("copied").toDF(version=version))) for version in versions] == before


@pytest.mark.parametrize("marking", [False, True], ids=["copied", "marked"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_listed_is_what_spark_lists(duck: Session, root: Path, spark: Any, marking: bool, seed: int) -> None:
    location = root / "main" / "t"
    aged(duck, random.Random(seed), location, marking)
    copied = root / "main" / f"copy_{seed}_{marking}"  # at a place that no session remembers
    shutil.copytree(location, copied)
    if marking:
        spark.sql(f"DELETE FROM delta.`{copied}` WHERE id % 3 = 0")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        # the longest first: a checkpoint drops what was removed longer ago than the property says
        wanted = {days: listed_by_spark(spark, copied, days) for days in (30, 14, 9, 4, 1, 0)}
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    wanted = {days: {path for path in paths if (copied / path).is_file()} for days, paths in wanted.items()}
    found = {days: listed(duck, copied.name, days) for days in wanted}
    assert {days: (found[days] - wanted[days], wanted[days] - found[days]) for days in wanted} == dict.fromkeys(
        wanted, (set(), set())
    )
    assert len(wanted[0]) > len(wanted[9]) > 0


def marked(session: Session, *, deleted: tuple[int, ...] = (7, 11)) -> Path:
    """A table of one file with vectors in files of their own: a version for each vector, and the folder."""
    session.execute("t", WriteSpec("overwrite"), duckrun.SQL("SELECT range AS id FROM range(20000)"))
    for divisor in deleted:
        session.execute("t", DeleteSpec(f"id % {divisor} = 5", merge_mode="deletion_vectors"))
    return Path(session.table("t").snapshot().ref.location)


def test_vectors_of_versions_in_retention_stay_and_the_others_go(duck: Session) -> None:
    location = marked(duck)
    assert len(list(location.glob("*.bin"))) == 2
    old_files(location, 40)
    assert duck.table("t").vacuum().removed == ()
    assert duck.table("t").toDF(version=1).count() == 20_000 - len(range(5, 20_000, 7))
    spread_over_days(location, 0, 8)
    [gone] = duck.table("t").vacuum().removed
    assert gone.endswith(".bin") and len(list(location.glob("*.bin"))) == 1
    kept = [n for n in range(20_000) if n % 7 != 5 and n % 11 != 5]
    assert sorted(rows_of(duck.sql("SELECT * FROM t"))) == [(n,) for n in kept]


def test_a_vector_of_an_unknown_kind_ends_the_vacuum(duck: Session) -> None:
    location = marked(duck)
    newest = log(location)[-1]
    newest.write_text(newest.read_text().replace('"storageType": "u"', '"storageType": "x"'))
    old_files(location, 40)
    with duckrun.connect(duck.lake.root) as later, pytest.raises(UnsupportedFeature, match="kind 'x'"):
        later.execute("t", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert len(list(location.glob("*.bin"))) == 2


def test_vectors_stay_where_only_a_checkpoint_names_them(duck: Session) -> None:
    location = marked(duck)
    duck.table("t").checkpoint()
    for commit in log(location):
        commit.unlink()
    old_files(location, 40)
    assert duck.table("t").vacuum().removed == ()
    removed = duck.execute("t", VacuumSpec(retention_hours=0, enforce_retention=False)).removed
    assert len(removed) == 1 and removed[0].endswith(".bin")
    kept = [n for n in range(20_000) if n % 7 != 5 and n % 11 != 5]
    assert sorted(rows_of(duck.sql("SELECT * FROM t"))) == [(n,) for n in kept]


def test_a_vector_in_the_log_ends_the_vacuum_of_spark_and_not_ours(duck: Session, spark: Any) -> None:
    """VacuumCommand.getDeletionVectorRelativePathAndSize has no case for a vector without a file (delta-spark 4.4.0)."""
    location = marked(duck, deleted=(1000,))
    newest = log(location)[-1]
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = IN_THE_LOG
    newest.write_text("\n".join(map(json.dumps, actions)))
    duck = duckrun.connect(duck.lake.root)  # the other session knows the commit as it made it
    with pytest.raises(Exception, match="MatchError"):
        spark.sql(f"VACUUM delta.`{location}` DRY RUN").collect()
    assert duck.table("t").vacuum().removed == ()


def test_versions_with_other_vectors_come_back(duck: Session, spark: Any) -> None:
    location = marked(duck)
    counts = [duck.table("t").toDF(version=version).count() for version in range(3)]
    duck.execute("t", PurgeSpec())
    for version in (1, 2, 0, 1):
        duck.execute("t", RestoreSpec(version=version))
        assert duck.sql("SELECT count(*) FROM t").toArrow().column(0)[0].as_py() == counts[version]
        assert spark.read.format("delta").load(str(location)).count() == counts[version]
    old_files(location, 40)
    duck.execute("t", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert duck.table("t").toDF().count() == counts[1] and len(list(location.glob("*.bin"))) == 1
    duck.execute("t", DeleteSpec("id < 100"))
    assert sorted(rows_of(duck.sql("SELECT * FROM t"))) == [(n,) for n in range(100, 20_000) if n % 7 != 5]


def test_files_that_the_log_names_by_their_whole_path_stay(duck: Session) -> None:
    location = marked(duck)
    for commit in log(location):
        text = commit.read_text().replace('"path": "', f'"path": "file://{location}/')
        commit.write_text(text)
    old_files(location, 40)
    duckrun.connect(duck.lake.root).execute("t", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert len(list(location.glob("*.parquet"))) == 1


def test_another_table_inside_the_folder_stays(duck: Session) -> None:
    location = marked(duck)
    duck.execute("u", WriteSpec("overwrite"), pa.table({"n": [1]}))
    shutil.copytree(location.parent / "u", location / "sub" / "u")
    old_files(location, 40)
    removed = duck.execute("t", VacuumSpec(retention_hours=0, enforce_retention=False)).removed
    assert [path for path in removed if not path.endswith(".bin")] == []
    assert DeltaTable(location / "sub" / "u").to_pyarrow_table().num_rows == 1


def test_a_feature_whose_files_are_not_known_is_refused_by_name(duck: Session) -> None:
    location = marked(duck, deleted=(7,))
    body = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                         "writerFeatures": ["deletionVectors", "appendOnly", "invariants", "hidingPlaces"]}}  # fmt: skip
    (location / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(body))
    with pytest.raises(UnsupportedFeature, match=r"(?s)main\.t.*hidingPlaces.*Nothing was written"):
        duck.execute("t", VacuumSpec(retention_hours=0, enforce_retention=False))
    assert len(list(location.glob("*.bin"))) == 1


@pytest.mark.parametrize(
    "interval",
    [
        "interval 1 week",
        "7 days",
        "INTERVAL 168 HOURS",
        "interval 6 days 23 hours 3600 seconds",
        "interval 1 week -0 day",
    ],
)
def test_the_retention_of_a_table_in_the_spellings_of_spark(duck: Session, interval: str) -> None:
    location = marked(duck, deleted=(7,))
    properties = {"delta.enableDeletionVectors": "true", "delta.deletedFileRetentionDuration": interval}
    meta = duck.lake.format.definition(duck.table("t").snapshot()).action()
    (location / "_delta_log" / f"{2:020d}.json").write_text(
        json.dumps({"metaData": {**meta, "configuration": properties}})
    )
    with pytest.raises(InvalidConfig, match=r"(?s)main\.t.*enforce_retention"):
        duck.execute("t", VacuumSpec(retention_hours=167.99))
    assert duck.execute("t", VacuumSpec(retention_hours=168)).removed == ()
    for name, days in (("part-old.parquet", 7.01), ("part-young.parquet", 6.99)):
        (location / name).write_bytes(b"killed")
        os.utime(location / name, (time.time() - days * DAY,) * 2)
    assert duck.table("t").vacuum().removed == ("part-old.parquet",)


UNITS = {"weeks": 7 * DAY, "days": DAY, "hours": 3600, "minutes": 60, "seconds": 1, "milliseconds": 1e-3}


@pytest.mark.parametrize(
    "text", ["interval 1 month", "1.5 days", "", "interval", "-1 day", "seven days", "5", "1 day x"]
)
def test_no_interval_is_guessed(text: str) -> None:
    with pytest.raises(ValueError, match="interval"):
        milliseconds(text)


def test_intervals_are_those_of_spark(spark: Any) -> None:
    rng = random.Random(1)
    for count, prefix in itertools.product((1, 2, 4), ("", "interval ", "INTERVAL  ")):
        chosen = rng.sample(sorted(UNITS), count)
        text = prefix + " ".join(f"{rng.choice(('', '+'))}{rng.randrange(50)} {unit}" for unit in chosen)
        found = spark.sql(f"SELECT unix_millis(TIMESTAMP'1970-01-01 00:00:00Z' + CAST('{text}' AS INTERVAL)) AS ms")
        assert found.collect()[0]["ms"] == milliseconds(text), text


def test_a_file_that_a_clock_behind_has_just_removed_stays(duck: Session, root: Path) -> None:
    duck.execute("t", WriteSpec("overwrite"), rows(random.Random(1)))
    duck.execute("t", WriteSpec("overwrite"), rows(random.Random(2)))
    location = root / "main" / "t"
    old_files(location, 40)
    newest = log(location)[-1]
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    (removed,) = (action["remove"] for action in actions if "remove" in action)
    removed["deletionTimestamp"] = 0
    newest.write_text("\n".join(map(json.dumps, actions)))
    with duckrun.connect(root) as fresh:
        assert listed(fresh, "t", 7) == set()
    moment = time.time() - 8 * DAY
    os.utime(newest, (moment, moment))
    with duckrun.connect(root) as fresh:
        assert listed(fresh, "t", 7) == {removed["path"]}
