"""What the embedded engine wrote, held against Spark's own checks, for each feature of Delta tables: every version, the figures, the feed and the history
are as a model has them, statistics skip no row, Spark's statements work on, and ours on top of these; and a moment means the same version.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

import duckrun
from duckrun import AlterSpec, DeleteSpec, MergeSpec, Session, UpdateSpec, VacuumSpec, WriteSpec
from duckrun.sql.quoting import quote_literal
from duckrun.values.data_files import place_of
from duckrun.values.rows import ReadSpec
from duckrun.values.tables import AddColumn, ChangeType, ColumnSpec, OptimizeSpec, RenameColumn, RestoreSpec
from tests.drawing import seed
from tests.engines.feature_cases import FEATURES, Feature, for_engine, source, together
from tests.engines.spark_checks import (
    CHECKS,
    WITHIN_RETENTION,
    answers_by_the_log,
    check_skipping,
    forget,
    read,
    set_to,
)
from tests.lake import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.matrix]
BOTH = ("duckdb", "spark")
FEED, TRACKED = "delta.enableChangeDataFeed", "delta.enableRowTracking"
MODE = "delta.columnMapping.mode"
ROW_IDS = "id, _metadata.row_id, _metadata.row_commit_version"


def _all_but(name: str, *but: str) -> Feature:
    out = {"none", "append-only", *but}
    return replace(together([feature for feature in FEATURES if feature.name not in out]), name=name)


CASES = (
    *FEATURES,
    _all_but("all, partitioned, mapped by name", "liquid clustering", "column mapping by id"),
    _all_but("all, clustered, mapped by name", "partitioned", "column mapping by id"),
    _all_but("all, clustered, mapped by id", "partitioned", "column mapping by name", "long and quoted names"),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    """A session of each engine on one lake, while Spark checks what it reads and what it commits."""
    root = tmp_path_factory.mktemp("checked") / "lake"
    with (
        set_to(spark, CHECKS | WITHIN_RETENTION),
        duckrun.connect(root) as duck,
        duckrun.connect(root, engine="spark", spark=spark) as other,
    ):
        yield {"duckdb": duck, "spark": other}


@dataclass
class Written:
    """A table that the embedded engine writes, and what is to be in it: its rows, those of each version, and what each commit did."""

    duck: Session
    feature: Feature
    name: str
    rows: dict[int, str] = field(default_factory=dict)
    versions: dict[int, dict[int, str]] = field(default_factory=dict)
    commits: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)
    feed: dict[int, Counter[tuple[str, int, str]]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(self.duck.ref(self.name).location)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.duck.snapshot(self.name).properties)

    def do(self, operation: str, spec: Any, source: Any = None, **metrics: int) -> None:
        """Write once; the rows were changed in the model before."""
        self.duck.execute(self.name, spec, source)
        version = self.duck.snapshot(self.name).version
        assert version not in self.versions, f"{spec} made no commit"
        before = self.versions.get(version - 1, {})
        self.versions[version] = dict(self.rows)
        self.commits[version] = (operation, {name: str(value) for name, value in metrics.items()})
        gone = {i: v for i, v in before.items() if i not in self.rows}
        new = {i: v for i, v in self.rows.items() if i not in before}
        changed = [i for i in self.rows if i in before and before[i] != self.rows[i]]
        self.feed[version] = Counter(
            [("delete", *row) for row in gone.items()]
            + [("insert", *row) for row in new.items()]
            + [("update_preimage", i, before[i]) for i in changed]
            + [("update_postimage", i, self.rows[i]) for i in changed]
        )

    def append(self, *ids: int) -> None:
        self.rows |= {i: f"n{i}" for i in ids}
        self.do("WRITE", WriteSpec("append"), source(self.feature, "duckdb", *ids), numOutputRows=len(ids))

    def write(self) -> None:
        """In each way."""
        spec = self.feature.spec
        widens = self.feature.name == "type widening"
        if widens:
            spec = replace(spec, columns=(ColumnSpec("id", "INTEGER"), *spec.columns[1:]))
        self.do("CREATE TABLE", spec)
        self.append(1, 2, 3)
        if widens:
            self.do("CHANGE COLUMN", AlterSpec((ChangeType("id", "BIGINT"),)))
        self.append(4, 5)
        if not self.feature.appends_only:
            self.change()
        self.do("OPTIMIZE", OptimizeSpec())
        before = max(self.versions)
        self.do("ADD COLUMNS", AlterSpec((AddColumn(ColumnSpec("more", "BIGINT")),)))
        if self.feature.appends_only:
            return
        if MODE in self.properties:
            self.do("RENAME COLUMN", AlterSpec((RenameColumn("more", "one ` more"),)))
        del self.rows[3]
        self.do("DELETE", DeleteSpec("id = 3"), numDeletedRows=1)
        self.rows = dict(self.versions[before])
        self.do("RESTORE", RestoreSpec(before))
        self.append(9)

    def change(self) -> None:
        self.rows |= {5: "m5", 6: "m6"}
        merged = source(self.feature, "duckdb", 5, 6, v="m")
        self.do("MERGE", MergeSpec(("id",)), merged, numTargetRowsInserted=1, numTargetRowsUpdated=1)
        self.rows[2] = "u"
        self.do("UPDATE", UpdateSpec({"v": "'u'"}, "id = 2"), numUpdatedRows=1)
        del self.rows[1]
        self.do("DELETE", DeleteSpec("id = 1"), numDeletedRows=1)


@dataclass
class Checked:
    """The same table as Spark has it."""

    spark: Any
    written: Written
    duck: Session

    def sql(self, text: str) -> list[Any]:
        return self.spark.sql(text.replace("{t}", f"delta.`{self.written.path}`")).collect()

    def check_rows(self, *, anew: bool = False) -> None:
        """Both read the rows of the model, with the columns that the feature has beside."""
        path, extras = self.written.path, self.written.feature.extras
        wanted = sorted(self.written.rows.items(), key=repr)
        holds = [for_engine(extra.holds, "spark")[0] for extra in extras] + [e.quoted for e in extras if e.differ]
        found = read(self.spark, path, ", ".join(["id", "v", *holds]), anew=anew)
        assert [row[:2] for row in found] == wanted
        for n, extra in enumerate(extras, 2):
            assert all(row[n] for row in found), extra
            ours, dialect = for_engine(extra.holds, "duckdb")
            assert (
                rows_of(self.duck.sql(f"select id from {self.written.name} where not ({ours})", dialect=dialect)) == []
            )
        assert all(len({row[n] for row in found}) == len(found) for n in range(2 + len(extras), 2 + len(holds)))
        assert rows_of(self.duck.sql(f"select id, v from {self.written.name}")) == wanted

    def check_versions(self) -> None:
        """Some versions, drawn by the seed, have the rows that they had."""
        chosen = Random(f"{seed()} {self.written.name}").sample(sorted(self.written.versions), 3)
        found: dict[int, dict[int, str]] = {n: {} for n in chosen}
        selects = [f"select {n} as n, id, v from {{t}} version as of {n}" for n in found]
        for version, i, v in self.sql(" union all ".join(selects)):
            assert i not in found[version]
            found[version][i] = v
        assert found == {n: self.written.versions[n] for n in found}

    def check_detail(self) -> None:
        """DESCRIBE DETAIL says what ours does, and what lies there."""
        ours = self.duck.table(self.written.name).detail()
        (theirs,) = self.sql("describe detail {t}")
        same: tuple[str, ...] = (
            "id",
            "numFiles",
            "sizeInBytes",
            "partitionColumns",
            "clusteringColumns",
            "properties",
            "description",
        )
        same += ("minReaderVersion", "minWriterVersion")
        assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
        assert sorted(ours["tableFeatures"]) == sorted(theirs["tableFeatures"])
        assert abs((ours["createdAt"] - theirs["createdAt"].astimezone(UTC)).total_seconds()) < 0.001
        files = self.duck.snapshot(self.written.name).files()
        assert theirs["numFiles"] == len(files)
        ref = self.duck.ref(self.written.name)
        assert theirs["sizeInBytes"] == sum(Path(place_of(ref.location, file)).stat().st_size for file in files)

    def check_history(self) -> None:
        """DESCRIBE HISTORY has every commit, with the words and the counts of Spark's own."""
        history = {row["version"]: row for row in self.sql("describe history {t}")}
        assert list(history) == sorted(self.written.commits, reverse=True)
        assert all(row["timestamp"] and row["engineInfo"] for row in history.values())
        stamps = [history[version]["timestamp"] for version in sorted(history)]
        assert stamps == sorted(stamps)
        for version, (operation, metrics) in self.written.commits.items():
            found = history[version]
            assert found["operation"] == operation, version
            assert {key: found["operationMetrics"].get(key) for key in metrics} == metrics, (version, operation)

    def check_feed(self) -> None:
        """table_changes has what each commit changed; of a RESTORE, which moves whole files, what is different afterwards."""
        found: dict[int, Counter[tuple[str, int, str]]] = {}
        stamps = {row["version"]: row["timestamp"] for row in self.sql("describe history {t}")}
        told = "_change_type, id, v, _commit_version, _commit_timestamp"
        spans = self.spans()
        for first, last in spans:
            asked = f"table_changes_by_path('{self.written.path}', {first}, {last})"
            for kind, i, v, version, stamp in self.sql(f"select {told} from {asked}"):
                found.setdefault(version, Counter())[kind, i, v] += 1
                assert stamp == stamps[version]
        for version in (version for first, last in spans for version in range(first, last + 1)):
            wanted = self.written.feed[version]
            changes = found.pop(version, Counter())
            if self.written.commits[version][0] == "RESTORE":
                assert _net(changes) == _net(wanted)
                continue
            assert changes == wanted, (version, self.written.commits[version][0])
        assert not found

    def spans(self) -> list[tuple[int, int]]:
        """First and last of the versions that have the same columns, which Spark reads a feed of together where they are mapped; where they are
        not, it reads none of columns that the newest version has not.
        """
        spans: list[tuple[int, int]] = []
        names = {
            version: tuple(self.duck.snapshot(self.written.name, ReadSpec(version=version)).schema.names)
            for version in self.written.versions
        }
        newest = set(names[max(names)])
        for version, here in names.items():
            if MODE not in self.written.properties and not set(here) <= newest:
                continue
            together = spans and spans[-1][1] == version - 1 and names[version - 1] == here
            spans = [*spans[:-1], (spans[-1][0], version)] if together else [*spans, (version, version)]
        return spans

    def check_statistics(self) -> None:
        """Files are skipped, and counts taken from the log, with the same answers as without."""
        path, feature = self.written.path, self.written.feature
        conditions = ["id = 2", "id >= 5", "id < 3", "id is null", "v = 'u'", "v > 'n4'", "v <= 'm6'", "v is not null"]
        plain = ["id", "v"]
        for column, extra in zip(feature.spec.columns[2:], feature.extras, strict=True):
            if column.type == "VARIANT":
                conditions.append(f"{extra.quoted} is null")
                continue
            if column.type.startswith("STRUCT"):
                named = extra.quoted
                conditions += [f"{named}.a = 'n4'", f"{named}.b[0].c >= 5", f"{named} is null", f"{named}.a is null"]
                continue
            plain.append(extra.quoted)
            values = {row[0] for row in self.sql(f"select {extra.quoted} from {{t}}")} - {None}
            some = [_literal(value) for value in sorted(values)[:3]]
            conditions += [f"{extra.quoted} {op} {value}" for value in some for op in ("=", "<", ">=")]
            conditions += [f"{extra.quoted} is null", f"{extra.quoted} is not null"]
        check_skipping(self.spark, path, conditions)
        by_log, by_rows = answers_by_the_log(self.spark, path, plain)
        assert by_log == by_rows and by_log[0] == len(self.written.rows)

    def row_ids(self) -> list[tuple[Any, ...]]:
        return read(self.spark, self.written.path, ROW_IDS)

    def check_vacuum(self) -> None:
        """VACUUM of all that is no longer needed takes the files that ours would, and no other."""
        time.sleep(0.01)  # what is no older than the moment of the call stays
        spec = VacuumSpec(retention_hours=0, enforce_retention=False, dry_run=True)
        ours = set(self.duck.execute(self.written.name, spec).removed)
        assert ours, "there was something to remove"
        before = _files(self.written.path)
        self.sql("vacuum {t} retain 0 hours")
        assert before - _files(self.written.path) == ours


def _files(path: Path) -> set[str]:
    return {
        str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and "_delta_log" not in file.parts
    }


def _net(feed: Counter[tuple[str, int, str]]) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for (kind, *row), count in feed.items():
        found[tuple(row)] += count if kind in ("insert", "update_postimage") else -count  # type: ignore[index]
    return Counter({row: count for row, count in found.items() if count})


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return quote_literal(value)
    return f"timestamp_ntz'{value.isoformat(' ')}'" if isinstance(value, datetime) else repr(value)


@pytest.mark.drawn(27)
@pytest.mark.parametrize("feature", CASES, ids=lambda feature: feature.name)
def test_spark_finds_nothing_wrong_and_works_on(both: dict[str, Session], spark: Any, feature: Feature) -> None:
    duck = both["duckdb"]
    name = "main." + re.sub(r"\W", "_", feature.name)
    written = Written(duck, feature, name)
    written.write()
    checked = Checked(spark, written, duck)
    checked.check_rows(anew=True)
    checked.check_versions()
    checked.check_detail()
    checked.check_history()
    checked.check_statistics()
    if written.properties.get(FEED) == "true":
        checked.check_feed()
    if feature.appends_only:
        return
    tracked = written.properties.get(TRACKED) == "true"
    ids, newest = checked.row_ids() if tracked else [], max(written.versions)
    checked.sql("optimize {t}" + (" full" if feature.spec.cluster_by else ""))
    checked.check_rows()
    assert not tracked or checked.row_ids() == ids
    checked.sql("update {t} set v = 'by spark' where id = 4")
    duck.execute(name, DeleteSpec("id = 5"))
    checked.sql(f"restore table {{t}} to version as of {newest}")
    checked.check_rows()
    assert not tracked or checked.row_ids() == ids
    checked.check_vacuum()
    checked.check_rows(anew=True)
    duck.execute(name, WriteSpec("append"), source(feature, "duckdb", 20))
    duck.execute(name, MergeSpec(("id",)), source(feature, "duckdb", 4, 21, v="m"))
    duck.execute(name, DeleteSpec("id = 2"))
    checked.sql("delete from {t} where id = 9")
    written.rows |= {20: "n20", 4: "m4", 21: "m21"}
    written.rows = {i: v for i, v in written.rows.items() if i not in (2, 9)}
    if written.properties.get("delta.enableDeletionVectors") == "true":
        checked.sql("reorg table {t} apply (purge)")
    checked.check_rows(anew=True)
    checked.check_detail()
    assert not tracked or _kept(ids, checked.row_ids())


def _kept(before: Sequence[tuple[Any, ...]], now: Sequence[tuple[Any, ...]]) -> bool:
    """True if rows that stay have their ids, and no two have the same."""
    old = {i: row_id for i, row_id, _ in before}
    return len({row_id for _, row_id, _ in now}) == len(now) and all(
        old.get(i, row_id) == row_id for i, row_id, _ in now
    )


def test_a_moment_gives_the_version_that_spark_gives(both: dict[str, Session], spark: Any) -> None:
    duck, name = both["duckdb"], "main.moments"
    path = Path(duck.ref(name).location)
    made = "create table {} (id int, v string) using delta tblproperties ('delta.enableInCommitTimestamps' = 'true')"
    duck.sql(made.format(name), dialect="spark")
    for turn in range(4):
        both[BOTH[turn % 2]].sql(f"insert into {name} values ({turn}, 'a')", dialect="spark")
        time.sleep(0.02)
    stamps = []
    for commit in sorted((path / "_delta_log").glob("*.json")):
        stamps.append(json.loads(commit.read_text().splitlines()[0])["commitInfo"]["inCommitTimestamp"])
        os.utime(commit, (1_000_000_000, 1_000_000_000))  # the file's own moment says nothing
    assert stamps == sorted(set(stamps))
    for version, stamp in enumerate(stamps):
        moments = [stamp] + ([stamp - 1] if version else [])
        for moment in moments:
            said = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
            forget(spark)
            theirs = spark.read.format("delta").option("timestampAsOf", said).load(str(path)).count()
            assert duck.scan(name, ReadSpec(timestamp=said)).count() == theirs, (version, moment - stamp)
            expected = version if moment == stamp else version - 1
            assert duck.snapshot(name, ReadSpec(timestamp=said)).version == expected == theirs
