"""Merge, and delete+insert, on Spark: one MERGE statement each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from duckrun.engines.decisions import refuse_missing_keys, repeated_source_keys
from duckrun.engines.fit import assigned_columns, castable_columns, columns_in_expressions
from duckrun.engines.spark.access import kept
from duckrun.engines.spark.foreign_servers import other_implementation
from duckrun.engines.spark.sql import (
    assignments,
    changing_others,
    changing_rows,
    compared_in,
    delete_insert_statement,
    in_spark,
    key_equality,
    merge_dry_run,
    merge_statement,
    of_target,
    quote,
    to_spark,
)
from duckrun.engines.spark.table_write import SparkWrite
from duckrun.engines.spark.types import casts_to, fit_all, with_casts
from duckrun.engines.spark.weights import SPARK
from duckrun.errors import SchemaMismatch
from duckrun.libraries import pa
from duckrun.sql.quoting import fresh_name
from duckrun.values.rows import Commit, DeleteInsertSpec, MergeSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Create = Callable[["DataFrame", MergeSpec | DeleteInsertSpec], Commit | None]


def merge(job: SparkWrite, spec: MergeSpec, create: Create) -> Commit | None:
    """Run Spark's MERGE after checks of its keys and expressions.

    Args:
        create: Creates the table from rows, if it does not exist yet.

    Raises:
        DuplicateSourceKeys: A key repeats in the source.
        InvalidConfig: A key or an expression names an unknown column.
        SchemaMismatch: The columns do not fit the table.
    """
    frame = job.rows()
    copies: dict[str, str] = {}
    if job.snapshot is not None and not job.is_new:
        cast, assigned = castable_columns(spec, frame.columns), assigned_columns(spec, frame.columns)
        casts = casts_to(frame, _compared_schema(job, spec), cast, assigned)
        frame, copies = _with_own_values(spec, frame, casts)
        frame = job.checked(with_casts(frame, casts), job.snapshot.partition_columns)
    _check_keys(job, frame, spec.keys, spec.compared)
    if job.is_new:
        return _merge_into_nothing(job, frame, spec, create)
    _check_duplicates(job, frame, spec.keys)
    whole = [c for c in spec.clauses if not c.kind.endswith("delete") and c.columns is None and c.set is None]
    there = {name.lower() for name in (*job.target_schema().names, *copies.values())}
    evolve = (
        bool(job.grown)
        or spec.schema_mode != "fail"
        and any(n.lower() not in there and spec.takes(n) for n in frame.columns)
    )
    columns: list[str] = []
    if whole:
        hidden = {*spec.compared, *copies.values()}
        visible = frame.select(*[quote(name) for name in frame.columns if name not in hidden])
        filled, new = job.fit(visible, spec.schema_mode, merges=True)
        columns = [*[t for t, s in filled.items() if s is not None], *new]
        respelled = {s: t for t, s in filled.items() if s is not None and s != t}
        # Rename columns that differ from the table's in letter case only.
        frame = frame.withColumnsRenamed(respelled) if respelled else frame
        copies = {respelled.get(name, name): copy for name, copy in copies.items()}
    else:
        listed = {c for clause in spec.clauses for c in clause.columns or ()}
        names = {n.lower() for n in frame.columns}
        missing = sorted(c for c in listed if c.lower() not in names)
        if missing:
            raise SchemaMismatch(f"missing in the data: {', '.join(missing)}")
    frame, apart = _swapped(frame, copies)
    apart |= {c: apart[name] for c in job.target_schema().names for name in copies if c.lower() == name.lower()}
    with job.access.view(frame) as source:
        job.analyse(merge_dry_run(spec, job.target, source, [c for c in columns if c in frame.columns], apart))
        spec = _shaped(job, spec, source)
        chars = job.chars(spec.keys)

        def statement(rows: str) -> str:
            return merge_statement(spec, job.target, rows, columns, apart, evolve=evolve, chars=chars)

        if not spec.only_if_changed:
            return job.change(statement(source))
        spec = _changes_alone(job, spec, columns, apart)
        changing = job.access.sql(changing_rows(spec, job.target, source, apart, chars))
        with kept(changing) if other_implementation(job.spark) is None else nullcontext(changing) as rows:
            alone = any(clause.kind.startswith("not_matched_by_source") for clause in spec.clauses)
            others = job.access.sql(changing_others(spec, job.target, source, apart, chars)) if alone else None
            # Spark's MERGE commits a version even if it changes nothing.
            if not evolve and rows.isEmpty() and (others is None or others.isEmpty()):
                assert job.snapshot is not None
                return job.transaction.nothing(job.snapshot, "no row was concerned")
            if alone:
                return job.change(statement(source))
            # Spark rewrites each file with a row that matches, also if no clause applies to it.
            with job.access.view(rows) as changing_view:
                return job.change(statement(changing_view))


def _changes_alone(job: SparkWrite, spec: MergeSpec, columns: Sequence[str], cast: Mapping[str, str]) -> MergeSpec:
    """Add to each update that it changes a value, in Spark's dialect."""
    assert job.snapshot is not None
    spec = in_spark(spec)
    fields = {field.name.lower(): field for field in job.snapshot.schema}
    kinds = {field.name.lower(): field.dataType.simpleString() for field in job.target_schema().fields}
    grown = {name.lower() for name in job.grown}
    variants = {name.lower() for name in job.snapshot.variants | job.snapshot.variants_inside}

    def differs(column: str, value: str) -> str:
        name = column.lower()
        if name in grown:  # the table's structs do not have all fields yet
            return "true"
        if name not in fields:
            return f"({value}) IS NOT NULL"
        field, old = fields[name], quote("target", fields[name].name)
        new = f"({value})" if pa.types.is_nested(field.type) else f"CAST({value} AS {kinds[name]})"
        return SPARK.differs(old, new, field, is_variant=name in variants)

    clauses, decided = [], dict[str, list[str]]()
    for clause in spec.clauses:
        side, _, action = clause.kind.rpartition("_")
        # A row that an earlier update would not change is not one for a later clause.
        tests = [f"({test}) IS NOT TRUE" for test in decided.setdefault(side, [])]
        tests += [] if clause.condition is None else [f"({clause.condition})"]
        condition = " AND ".join(tests) or None
        if action == "update":
            decided[side].append(clause.condition or "true")
            changes = [differs(*each) for each in assignments(clause, columns, spec.dialect, cast).items()]
            # CASE, so that values of other rows are not computed: they may raise.
            condition = f"CASE WHEN {condition or 'true'} THEN {' OR '.join(changes)} ELSE false END"
        clauses.append(replace(clause, condition=condition))
    return replace(spec, clauses=tuple(clauses))


def _shaped(job: SparkWrite, spec: MergeSpec, source: str) -> MergeSpec:
    """Match the structs that the clauses set to the table's columns, by field name."""
    nested = {f.name.lower() for f in job.target_schema().fields if "struct<" in f.dataType.simpleString()}
    if not any(name.lower() in nested for clause in spec.clauses for name in clause.set or ()):
        return spec
    spec = in_spark(spec)
    clauses = []
    for clause in spec.clauses:
        values = {name: value for name, value in (clause.set or {}).items() if name.lower() in nested}
        if values:
            listed = ", ".join(values.values())
            kinds = job.analyse(f"SELECT {listed} FROM {job.target} AS target CROSS JOIN {source} AS source").fields
            clause = replace(clause, set={**(clause.set or {}), **job.shaped(values, kinds)})
        clauses.append(clause)
    return replace(spec, clauses=tuple(clauses))


def _with_own_values(spec: MergeSpec, frame: DataFrame, casts: Mapping[str, Any]) -> tuple[DataFrame, dict[str, str]]:
    """Copy the columns that are cast and that expressions name.

    Expressions see the uncast values. The result maps each column to its copy.
    """
    from pyspark.sql import functions as F

    copies: dict[str, str] = {}
    for name in sorted(columns_in_expressions(spec, casts)):
        copies[name] = fresh_name(f"__duckrun_own_{name}", [*frame.columns, *copies.values()])
    columns = {copy: F.col(quote(name)) for name, copy in copies.items()}
    return with_casts(frame, columns), copies


def _swapped(frame: DataFrame, copies: Mapping[str, str]) -> tuple[DataFrame, dict[str, str]]:
    """Put the uncast values under the columns' own names.

    The result maps each column to the name of its cast values.
    """
    from pyspark.sql import functions as F

    if not copies:
        return frame, {}
    cast = {name: fresh_name(f"__duckrun_cast_{name}", frame.columns) for name in copies}
    renamed = {**cast, **{copy: name for name, copy in copies.items()}}
    return frame.select(*[F.col(quote(n)).alias(renamed.get(n, n)) for n in frame.columns]), cast


def _merge_into_nothing(job: SparkWrite, frame: DataFrame, spec: MergeSpec, create: Create) -> Commit | None:
    _check_duplicates(job, frame, spec.keys)
    with job.access.view(frame) as source:
        columns = [name for name in frame.columns if name not in spec.compared]
        parts, earlier = list[Any](), "false"
        for clause in (c for c in spec.clauses if c.kind == "not_matched_insert"):
            condition = "true" if clause.condition is None else to_spark(clause.condition, spec.dialect)
            values = assignments(clause, columns, spec.dialect)
            select = ", ".join(f"{value} AS {quote(column)}" for column, value in values.items())
            where = f"({condition}) AND NOT ({earlier})"
            parts.append(job.access.sql(f"SELECT {select} FROM {source} AS source WHERE {where}"))
            earlier = f"{earlier} OR coalesce(({condition}), false)"
        rows = reduce(partial(type(frame).unionByName, allowMissingColumns=True), parts) if parts else frame.limit(0)
        if spec.within is not None:
            job.refuse_outside(rows, spec.within)
        return create(rows, spec)


def _compared_schema(job: SparkWrite, spec: MergeSpec) -> Any:
    """Return the table's schema, with the types of expressions that keys are compared with.

    Raises SchemaMismatch for a key that cannot be cast to such a type.
    """
    from pyspark.sql.types import StructField, StructType

    schema, compared = job.target_schema(), compared_in(spec)
    if not compared:
        return schema
    query = f"SELECT {', '.join(compared.values())} FROM {job.target} AS target"
    fields = job.access.sql(query).schema.fields
    kinds = [StructField(key, field.dataType) for key, field in zip(compared, fields, strict=True)]
    key_schema = job.rows().select(*[quote(key) for key in compared]).schema
    fit_all(key_schema, StructType(kinds), "fail", checked=job.access.ansi(), cast=compared)
    return StructType([*schema.fields, *kinds])


def _check_keys(job: SparkWrite, frame: DataFrame, keys: Sequence[str], compared: Collection[str] = ()) -> None:
    table = None if job.is_new else job.target_schema().names
    refuse_missing_keys(job.ref, keys, frame.columns, table, compared)


def _check_duplicates(job: SparkWrite, frame: DataFrame, keys: Sequence[str]) -> None:
    from pyspark.sql import functions as F

    columns = [F.col(quote(key)) for key in keys]
    number = fresh_name("n", keys)
    present = frame.select(*columns).where(" AND ".join(f"{quote(key)} IS NOT NULL" for key in keys))
    repeated = present.groupBy(*columns).agg(F.count(F.lit(1)).alias(number)).where(F.col(number) > 1)
    examples = repeated.limit(4).collect()
    if not examples:
        return
    total = len(examples) if len(examples) < 4 else repeated.count()
    raise repeated_source_keys(job.ref, total, keys, examples[:3])


def delete_insert(job: SparkWrite, spec: DeleteInsertSpec, create: Create) -> Commit | None:
    """Delete by key and insert, as one MERGE.

    Raises:
        InvalidConfig: A key is unknown.
        SchemaMismatch: The columns do not fit the table.
    """
    from pyspark.sql import functions as F

    frame = job.rows()
    _check_keys(job, frame, spec.keys)
    if job.snapshot is None or job.is_new:
        return create(frame, spec)
    frame = with_casts(frame, casts_to(frame, job.target_schema(), frame.columns))
    fitted, new = job.fitted(job.checked(frame, job.snapshot.partition_columns), spec.schema_mode)
    mark = fresh_name("__duckrun_row", [*fitted.columns, *job.target_schema().names])
    keys = fitted.select(*[quote(key) for key in spec.keys]).distinct().withColumn(mark, F.lit("D"))
    marked = fitted.withColumn(mark, F.lit("I")).unionByName(keys, allowMissingColumns=True)
    bounds = [limit for limit in (spec.predicate, spec.within) if limit is not None]
    limits = "".join(f" AND ({of_target(limit, spec.dialect)})" for limit in bounds)
    with job.access.view(marked) as source:
        on = f"{key_equality(spec.keys)}{limits}"
        job.analyse(f"SELECT 1 FROM {job.target} AS target JOIN {source} AS source ON {on}")
        on = f"{key_equality(spec.keys, chars=job.chars(spec.keys))}{limits}"
        evolve = bool(new or job.grown)
        return job.change(delete_insert_statement(job.target, source, on, mark, fitted.columns, evolve=evolve))
