"""Specs and openings refuse names that they do not have and values of another type, when they are constructed.

The fields are those that the classes have, so that a new one cannot be forgotten. Budget: 2 seconds.
"""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import duckrun
from duckrun import (
    AddColumn,
    AlterSpec,
    ApplySpec,
    ColumnSpec,
    DropColumn,
    InvalidConfig,
    Lake,
    MergeClause,
    MergeSpec,
    OptimizeSpec,
    ReadSpec,
    RenameColumn,
    SetProperties,
    UpdateSpec,
    WriteSpec,
)
from duckrun.values import applying, cursors, layout, rows, tables, upkeep

RESULTS = {"Returning", "Retracted", "Commit", "MaintenanceResult", "MemoryShares", "ColumnFigures", "ScanFile", "StagedFile", "Counter", "Range", "Offsets"}  # fmt: skip
"""Values that duckrun makes itself, a file or a commit each: no user writes them."""

SPECS: dict[str, Any] = {
    name: each
    for module in (rows, tables, upkeep, applying, layout, cursors, duckrun.engines.duckdb.rows.source)
    for name, each in vars(module).items()
    if dataclasses.is_dataclass(each)
    and isinstance(each, type)
    and each.__module__ == module.__name__
    and name not in RESULTS
    and (module is not duckrun.engines.duckdb.rows.source or name == "SQL")
}
"""Every class that a user constructs to say what is to be done."""

WHOLE: dict[str, tuple[Any, ...]] = {
    "AppTransaction": ("load",),
    "WorkTransaction": ("load",),
    "CursorTransaction": ("load",),
    "WriteSpec": ("append",),
    "MergeClause": ("matched_update",),
    "MergeSpec": (("id",),),
    "DeleteInsertSpec": (("id",),),
    "UpdateSpec": ({"v": "1"},),
    "ColumnSpec": ("id", "BIGINT"),
    "CreateSpec": ((ColumnSpec("id", "BIGINT"),),),
    "AddColumn": (ColumnSpec("id", "BIGINT"),),
    "DropColumn": ("id",),
    "RenameColumn": ("id", "nr"),
    "ChangeType": ("id", "BIGINT"),
    "SetNotNull": ("id",),
    "DropNotNull": ("id",),
    "AddCheck": ("positive", "id > 0"),
    "DropCheck": ("positive",),
    "SetProperties": ({"a": "b"},),
    "UnsetProperties": (("a",),),
    "ClusterBy": (("id",),),
    "SetComment": ("text",),
    "SetDefault": ("id", "1"),
    "InStruct": (("home",), RenameColumn("zip", "code")),
    "PartitionBy": (("id",),),
    "AlterSpec": ((DropColumn("id"),),),
    "RestoreSpec": (0,),
    "ApplySpec": (("id",),),
    "ExpireSpec": ((1,),),
    "RestoreLakeSpec": (1,),
    "SQL": ("select 1",),
}
"""The arguments that a spec needs; a class that is not here needs none."""


class Other:
    """No field takes one."""


def types_in(hint: Any) -> Iterator[Any]:
    yield hint
    for each in () if get_origin(hint) is Literal else get_args(hint):
        yield from types_in(each)


def test_every_public_spec_is_among_them() -> None:
    public = {name for name in duckrun.__all__ if dataclasses.is_dataclass(getattr(duckrun, name))}
    results = RESULTS | {
        "BranchDiff",
        "BranchInfo",
        "ChangeSet",
        "Done",
        "Moved",
        "Published",
        "Scan",
        "Snapshot",
        "TableDiff",
        "TableRef",
    }
    assert public - results == set(SPECS) & public
    assert len(SPECS) >= 50


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_made_of_what_it_needs_and_survives_pickle_and_replace(name: str) -> None:
    made = SPECS[name](*WHOLE.get(name, ()))
    assert pickle.loads(pickle.dumps(made)) == made == dataclasses.replace(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.anything = 1


def with_field(name: str, field: str, value: Any) -> dict[str, Any]:
    """The arguments that a spec needs, and one more, by name."""
    return {**dict(zip(inspect.signature(SPECS[name]).parameters, WHOLE.get(name, ()), strict=False)), field: value}


def is_text(hint: Any) -> bool:
    """True for a field that takes text, alone or beside other values."""
    inside = {get_origin(each) for each in types_in(hint)}
    return str in types_in(hint) and not inside & {tuple, Mapping}


@pytest.mark.parametrize("name", SPECS)
def test_a_value_of_another_type_is_refused_with_the_name_of_its_field(name: str) -> None:
    for field, hint in get_type_hints(SPECS[name]).items():
        with pytest.raises(InvalidConfig, match=rf"^{name}: {field} is <.*Other object"):
            SPECS[name](**with_field(name, field, Other()))
        wrong = 1 if is_text(hint) else "false"
        with pytest.raises(InvalidConfig, match=rf"^{name}: {field} is {wrong!r}"):
            SPECS[name](**with_field(name, field, wrong))


@pytest.mark.parametrize("name", SPECS)
def test_an_unknown_name_is_refused_with_the_nearest(name: str) -> None:
    names = [field.name for field in dataclasses.fields(SPECS[name])]
    if not names:
        with pytest.raises(InvalidConfig, match=f"{name} has no 'tables'"):
            SPECS[name](tables=1)
        return
    misspelt = max(names, key=len)[:-1] + "_"
    with pytest.raises(InvalidConfig, match=rf"^{name} has no '{misspelt}'\. Did you mean '{max(names, key=len)}'\?"):
        SPECS[name](*WHOLE.get(name, ()), **{misspelt: 1})


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: MergeSpec("id"), "MergeSpec: keys is 'id', a str; give a list, such as ['id']."),  # type: ignore[arg-type]
    (lambda: MergeSpec(("id", 1)), "MergeSpec: keys[1] is 1, an int; give text."),  # type: ignore[arg-type]
    (lambda: WriteSpec("append", partition_by="day"), "WriteSpec: partition_by is 'day', a str; give a list, such as ['day']."),  # type: ignore[arg-type]
    (lambda: WriteSpec("appnd"), "WriteSpec: mode is 'appnd'; it takes one of error, overwrite, append, ignore, replace, safeappend. Did you mean 'append'?"),  # type: ignore[arg-type]
    (lambda: MergeClause("matched_updat"), "Did you mean 'matched_update'?"),  # type: ignore[arg-type]
    (lambda: WriteSpec(), "WriteSpec needs 'mode'."),  # type: ignore[call-arg]
    (lambda: WriteSpec("append", mode="append"), "WriteSpec has 'mode' twice, by place and by name."),  # type: ignore[misc]
    (lambda: OptimizeSpec("a = 1", (), None, False), "OptimizeSpec takes 3 arguments by place (predicate, z_order_by, target_file_size); name the others."),  # type: ignore[misc]
    (lambda: WriteSpec("append", target_file_size=0), "target_file_size is 0, an int; give a whole number above 0."),
    (lambda: ReadSpec(version=-1), "ReadSpec: version is -1, an int; give a whole number from 0 on."),
    (lambda: ReadSpec(version=True), "ReadSpec: version is True, a bool; give a whole number."),
    (lambda: SetProperties({"delta.appendOnly": True}), "SetProperties: properties['delta.appendOnly'] is True, a bool; give text."),  # type: ignore[dict-item]
    (lambda: UpdateSpec("v = 1"), "UpdateSpec: set is 'v = 1', a str; give a dictionary."),  # type: ignore[arg-type]
    (lambda: ApplySpec(("id",), deletes=1), "ApplySpec: deletes is 1, an int; give True or False or text."),  # type: ignore[arg-type]
    (lambda: AlterSpec(AddColumn(ColumnSpec("v", "INT"))), "an AddColumn; give a list."),  # type: ignore[arg-type]
    (lambda: AlterSpec(("drop v",)), "AlterSpec: changes[0] is 'drop v', a str; give an AddColumn or a DropColumn"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_the_message_says_what_is_wrong_and_what_to_give(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        make()


def test_a_list_is_as_good_as_a_tuple() -> None:
    assert MergeSpec(["id"], [MergeClause("matched_delete")]) == MergeSpec(("id",), (MergeClause("matched_delete"),))  # type: ignore[arg-type]


OPENINGS: dict[str, Callable[..., Any]] = {
    "connect()": duckrun.connect,
    "attach()": lambda root, **values: duckrun.connect(root).attach(root, "other", **values),
    "Lake": Lake,
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"read_only": "false"}, ": read_only is 'false', a str; give True or False."),
        ({"read_only": 1}, ": read_only is 1, an int; give True or False."),
        ({"readonly": True}, " has no 'readonly'. Did you mean 'read_only'?"),
        ({"storage_options": "AWS_SECRET_ACCESS_KEY=hidden"}, ": storage_options is a str; give a dictionary."),
    ],
)
def test_openings_of_a_lake_refuse_the_same(tmp_path: Path, opening: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match="^" + re.escape(opening + message)):
        OPENINGS[opening](str(tmp_path), **values)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opens", [duckrun.connect, duckrun.Session.attach, Lake.__init__], ids=lambda f: f.__qualname__)  # fmt: skip
def test_every_argument_of_an_opening_is_checked(tmp_path: Path, opens: Any) -> None:
    session = duckrun.connect(tmp_path)
    needed: dict[str, Any] = {
        "connect": {"root_path": tmp_path},
        "attach": {"self": session, "root": tmp_path, "name": "other"},
    }.get(  # fmt: skip
        opens.__name__, {"self": object.__new__(Lake), "root": tmp_path}
    )
    for name in set(inspect.signature(opens).parameters) - {"self"}:
        with pytest.raises(InvalidConfig, match=rf"{name} is "):
            opens(**{**needed, name: Other()})


def test_a_lake_by_the_name_of_a_path_object_opens(tmp_path: Path) -> None:
    with duckrun.connect(root_path=tmp_path) as session:
        session.attach(root=tmp_path / "other", name="other")
        assert str(session.lake.root) == str(tmp_path)
