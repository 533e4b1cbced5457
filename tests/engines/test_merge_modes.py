"""How rows leave a table, by merge_mode: the same rows in each, on both engines; in marks where they were asked for."""

from __future__ import annotations

from typing import Any

import pytest

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.values.choices import MergeMode
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, MergeSpec, Spec, UpdateSpec, WriteSpec
from duckrun.values.tables import AlterSpec, ColumnSpec, CreateSpec, OptimizeSpec, SetProperties
from tests.lake import OneTable

pytestmark = [pytest.mark.formats, pytest.mark.only_format("delta", "how rows are marked in files")]

VECTORS = "delta.enableDeletionVectors"
Row = tuple[int, str]


def rows(*ids: int, v: str = "new") -> list[dict[str, Any]]:
    return [{"id": i, "v": f"{v}{i}"} for i in ids]


def marked(table: OneTable) -> bool:
    return any(file.deletion_vector for file in table.snapshot().files())


def asks(table: OneTable) -> bool:
    return table.snapshot().properties.get(VECTORS) == "true"


class Model:
    """What a table holds, as a dictionary: each step is done to it in plain Python."""

    def __init__(self, count: int) -> None:
        self.rows = {i: f"old{i}" for i in range(count)}

    def expected(self) -> list[Row]:
        return sorted(self.rows.items(), key=repr)

    def put(self, *ids: int) -> None:
        self.rows |= {i: f"new{i}" for i in ids}

    def keep(self, wanted: Any) -> None:
        self.rows = {i: v for i, v in self.rows.items() if wanted(i)}


@pytest.mark.parametrize(
    ("mode", "at_first", "marks"),
    [
        ("auto", False, False),
        ("auto", True, True),
        ("deletion_vectors", False, True),
        ("copy_on_write", True, False),
    ],
    ids=[
        "auto, a plain table",
        "auto, a table with vectors",
        "deletion_vectors",
        "copy_on_write, a table with vectors",
    ],
)
def test_every_change_leaves_the_same_rows_in_each_merge_mode(
    bench: OneTable, mode: MergeMode, at_first: bool, marks: bool
) -> None:
    model = Model(200)
    bench.run(WriteSpec("error", table_properties={VECTORS: "true"} if at_first else {}), rows(*range(200), v="old"))
    how: dict[str, Any] = {"merge_mode": mode}
    reasons = []

    def step(spec: Spec, source: list[dict[str, Any]] | None = None) -> tuple[int | None, ...]:
        commit = bench.run(spec, source)
        reasons.append(commit.reason)
        assert bench.rows("id", "v") == model.expected()
        if marks and len(reasons) < 3:  # later ones may meet a file that is not worth marking
            assert commit.files_marked and not commit.files_removed
        elif not marks:
            assert not marked(bench) and commit.files_marked == 0
        return commit.rows_inserted, commit.rows_updated, commit.rows_deleted

    model.keep(lambda i: i != 3)
    assert step(DeleteSpec("id = 3", **how))[2] == 1
    model.put(4, 300)
    assert step(MergeSpec(("id",), **how), rows(4, 300))[:2] == (1, 1)
    model.put(5, 6)
    assert step(UpdateSpec({"v": "'new' || id"}, "id in (5, 6)", **how))[1] == 2
    model.put(7, 301)
    assert step(DeleteInsertSpec(("id",), **how), rows(7, 301))[0] == 2
    model.keep(lambda i: i not in range(8, 12))
    model.put(9)
    assert step(WriteSpec("replace", predicate="id between 8 and 11", **how), rows(9))[0] == 1
    assert (marked(bench), asks(bench)) == (marks, marks or at_first)
    if mode == "deletion_vectors" and bench.session.engine_name == "spark":
        assert [f"version {1} turned" in reason for reason in reasons] == [True, False, False, False, False]
    bench.run(OptimizeSpec())
    assert bench.rows("id", "v") == model.expected()


@pytest.mark.parametrize(
    "spec",
    [WriteSpec("error", merge_mode="deletion_vectors"), WriteSpec("append", merge_mode="deletion_vectors"),
     WriteSpec("overwrite", merge_mode="deletion_vectors"), MergeSpec(("id",), merge_mode="deletion_vectors"),
     DeleteInsertSpec(("id",), merge_mode="deletion_vectors")],
    ids=lambda spec: spec.mode,
)  # fmt: skip
def test_a_new_table_asks_for_marks_from_its_first_commit(bench: OneTable, spec: Spec) -> None:
    assert bench.run(spec, rows(1, 2)).version == 0
    assert asks(bench)
    bench.run(DeleteSpec("id = 1"))
    assert bench.rows("id") == [(2,)]


def test_an_overwrite_has_the_table_ask_for_marks_and_an_append_leaves_it(bench: OneTable) -> None:
    bench.run(WriteSpec("error"), rows(1))
    bench.run(WriteSpec("append", merge_mode="deletion_vectors"), rows(2))
    assert not asks(bench)
    bench.run(WriteSpec("overwrite", merge_mode="deletion_vectors"), rows(*range(50)))
    assert asks(bench)
    bench.run(WriteSpec("overwrite"), rows(*range(50)))
    assert asks(bench), "an overwrite that says nothing keeps what the table has"
    bench.run(DeleteSpec("id = 2"))
    assert marked(bench) and len(bench.rows("id")) == 49


def test_a_table_made_without_rows_asks_for_marks(bench: OneTable) -> None:
    bench.run(CreateSpec((ColumnSpec("id", "BIGINT"), ColumnSpec("v", "VARCHAR")), merge_mode="deletion_vectors"))
    assert asks(bench)


def test_a_property_set_by_a_statement_is_the_word_of_a_notebook(bench: OneTable) -> None:
    bench.run(WriteSpec("error"), rows(*range(100)))
    bench.session.sql(f"ALTER TABLE {bench.name} SET TBLPROPERTIES ('{VECTORS}' = 'true')", dialect="spark")
    merged = bench.session.table(bench.name).merge(
        bench.session.sql("select 7::bigint as id, 'x' as v"), "target.id = source.id"
    )
    assert merged.whenMatchedUpdateAll().execute().files_marked == 1
    bench.session.sql(f"DELETE FROM {bench.name} WHERE id = 8")
    assert marked(bench) and len(bench.rows()) == 99
    bench.run(AlterSpec((SetProperties({VECTORS: "false"}),)))
    bench.run(DeleteSpec("id = 9"))
    assert not marked(bench) and len(bench.rows()) == 98


def test_columns_that_change_with_the_rows_leave_no_marks_behind(bench: OneTable) -> None:
    bench.run(WriteSpec("error", merge_mode="deletion_vectors"), rows(*range(20)))
    bench.run(DeleteSpec("id = 1"))
    spec = MergeSpec(("id",), schema_mode="sync_all_columns", merge_mode="deletion_vectors")
    bench.run(spec, [{"id": 2, "w": 2.5}])
    assert sorted(bench.rows("id", "w"), key=repr)[:2] == [(0, None), (10, None)]
    assert (2, 2.5) in bench.rows("id", "w") and len(bench.rows()) == 19


@pytest.mark.parametrize(
    "spec", [DeleteSpec("id = 1", merge_mode="deletion_vectors"), UpdateSpec({"v": "'x'"}, merge_mode="deletion_vectors")],
    ids=lambda spec: spec.mode,
)  # fmt: skip
def test_a_table_that_takes_only_rows_refuses_marks_and_stays_as_it_is(bench: OneTable, spec: Spec) -> None:
    bench.run(WriteSpec("error", table_properties={"delta.appendOnly": "true"}), rows(1, 2))
    with pytest.raises(InvalidConfig, match=r"sales\.orders.*append-only"):
        bench.run(spec)
    assert bench.version == 0


def test_a_change_that_cannot_be_carried_out_turns_nothing_on(bench: OneTable) -> None:
    bench.run(WriteSpec("error"), rows(1, 2))
    with pytest.raises(DuckrunError, match=r"sales\.orders"):
        bench.run(DeleteSpec("nowhere = 1", merge_mode="deletion_vectors"))
    assert bench.version == 0


def test_words_that_contradict_each_other_are_refused(bench: OneTable) -> None:
    spec = WriteSpec("error", merge_mode="deletion_vectors", table_properties={VECTORS: "false"})
    with pytest.raises(InvalidConfig, match=rf"sales\.orders: merge_mode is deletion_vectors.*{VECTORS} = false"):
        bench.run(spec, rows(1))
    assert bench.version is None


@pytest.mark.parametrize("make", [lambda **how: WriteSpec("append", **how), lambda **how: DeleteSpec(**how),
                                  lambda **how: UpdateSpec({"v": "1"}, **how), lambda **how: MergeSpec(("id",), **how),
                                  lambda **how: AlterSpec((SetProperties({}),), **how), lambda **how: OptimizeSpec(**how)])  # fmt: skip
def test_a_spec_takes_known_words_only(make: Any) -> None:
    with pytest.raises(
        InvalidConfig, match="merge_mode is 'vectors'; it takes one of auto, deletion_vectors, copy_on_write"
    ):
        make(merge_mode="vectors")
    with pytest.raises(InvalidConfig, match="writer is 'deltars'.*Did you mean 'delta_rs'"):
        make(writer="deltars")


def test_a_writer_of_duckdbs_files_goes_with_engine_duckdb(bench: OneTable) -> None:
    spec = WriteSpec("error", writer="staged")
    if bench.session.engine_name == "duckdb":
        assert bench.run(spec, rows(1)).version == 0
        return
    with pytest.raises(InvalidConfig, match=r"sales\.orders: writer staged makes the data files of engine duckdb"):
        bench.run(spec, rows(1))
    assert bench.version is None
