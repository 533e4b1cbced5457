"""Another writer between the read and the commit on Spark, and application entries that Spark keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import SQL, AppTransaction, CommitConflict, MergeSpec, Session, WriteSpec
from duckrun.engines.spark.write import Attempt
from duckrun.values.rows import DeleteInsertSpec
from tests import races
from tests.races import FOREIGN, OF_ITSELF, LetIn

pytestmark = pytest.mark.spark
SPECS: dict[str, Any] = {
    "append": WriteSpec("append"),
    "overwrite": WriteSpec("overwrite"),
    "replace": WriteSpec("replace"),
    "merge": MergeSpec(("id",)),
    "delete_insert": DeleteInsertSpec(("id",)),
}


@pytest.fixture
def on_spark(root: Path, spark: Any) -> Iterator[Session]:
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        yield session


def test_a_write_of_spark_out_of_its_own_table_is_computed_again_or_refused(
    on_spark: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in, added = LetIn(monkeypatch), FOREIGN[0]
    for mode, spec in SPECS.items():
        table, location = f"main.{mode}", root / "main" / mode
        races.make(location)
        query = OF_ITSELF.query.format(t=table)
        frame = on_spark.sql(query)
        let_in.next(location, "before the write", added)
        with pytest.raises(CommitConflict, match=rf"main\.{mode} was computed from version 1 .*version 2 \(WRITE\)"):
            on_spark.execute(table, spec, frame)
        races.judge(location, added, races.Write(mode, OF_ITSELF), CommitConflict("main."), of_itself=True)
        FOREIGN[4].commit(str(location))
        on_spark.execute(table, spec, SQL(query))
        assert races.held(location) == races.counted(races.Write(mode, OF_ITSELF)(added.change(races.START)))
    location = root / "main" / "again"
    races.make(location)
    on_spark.sql("select * from again").createOrReplaceTempView("seen")
    let_in.next(location, "before the write", added)
    on_spark.sql("insert into again by name " + OF_ITSELF.query.format(t="again"))
    assert races.held(location) == races.counted(races.Write("append", OF_ITSELF)(added.change(races.START)))
    with pytest.raises(CommitConflict, match=r"main\.again was computed from version 1"):
        on_spark.sql("insert into again select * from seen")


def test_what_spark_put_on_top_of_a_change_is_told(
    on_spark: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer without our lock may come while Spark writes, and Spark does not know what a frame was made of."""
    location, run = root / "main" / "t", Attempt.run
    races.make(location)

    def late(self: Attempt) -> Any:
        monkeypatch.undo()
        FOREIGN[0].commit(str(location))
        return run(self)

    monkeypatch.setattr(Attempt, "run", late)
    with pytest.raises(CommitConflict, match=r"main\.t was computed from version 1.*in version 3\. Restore version 2"):
        on_spark.execute("t", WriteSpec("append"), SQL("select * from t"))


@pytest.mark.parametrize("stream", [False, True], ids=["delta_rs", "staged"])
def test_spark_keeps_the_application_entries_of_the_embedded_engine(root: Path, spark: Any, stream: bool) -> None:
    properties = {"delta.setTransactionRetentionDuration": "interval 1 hours", "delta.checkpointInterval": "1"}
    rows, app = pa.table({"id": pa.array([1], pa.int64())}), AppTransaction("nightly/t", 3)
    writer = "staged" if stream else "delta_rs"
    with duckrun.connect(root) as session:
        session.execute("t", WriteSpec("append", table_properties=properties), rows)
        session.execute("t", WriteSpec("append", app=app, writer=writer), rows.to_reader() if stream else rows)
        location = str(root / "main" / "t")
        again = spark.createDataFrame([(9,)], "id long").write.format("delta").mode("append")
        again.option("txnAppId", app.app_id).option("txnVersion", "3").save(location)
        assert DeltaTable(location).version() == 1, "Spark has forgotten the entry, and wrote it again"
        spark.createDataFrame([(2,)], "id long").write.format("delta").mode("append").save(location)  # and a checkpoint
        replay = session.execute("t", WriteSpec("append", app=app), rows)
        assert (replay.replayed, replay.version) == (True, 1)
        assert sorted(row["id"] for row in session.sql("select id from t").collect()) == [1, 1, 2]
