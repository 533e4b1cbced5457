"""What is asked for when changes are applied to a table: the spec of it, which one merge carries out."""

from __future__ import annotations

from typing import Literal, get_args

from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, spec
from duckrun.values.layout import Layout
from duckrun.values.rows import SchemaMode, Spec

ScdType = Literal[1, 2]
SCD_TYPES: tuple[ScdType, ...] = get_args(ScdType)
VALID_FROM, VALID_TO = "valid_from", "valid_to"


@spec
class ApplySpec(Layout, Spec):
    """Changes of rows, each at a point of a sequence, applied to a table that holds the last state of each key (``scd`` 1) or all of
    its states (2), as half-open intervals ``[valid_from, valid_to)`` of the sequence, ``valid_to`` NULL while one holds.

    ``deletes`` says which changes delete their key: True those whose ``_change_type`` is delete, a text those that it is true for
    (SQL in ``dialect`` over the columns of the changes), False none, so that they are left out. ``columns`` are those to store, None all but
    the ones that a change query adds. Without ``sequence_by``, for ``scd`` 1 alone, what comes is newer than what is there. ``whole``: the
    table is made anew of the changes. ``within`` is SQL that is true for the rows that are touched, such as those of one partition: a key
    elsewhere stays, and a change whose row lies outside is RowsOutsidePartition; for ``scd`` 1 alone. Source of the words: R. Kimball, M. Ross, The Data Warehouse Toolkit, Slowly Changing
    Dimension Techniques, types 1 and 2.

    Example::

        s.execute("sales.dim", ApplySpec(("id",), "price", scd=2), rows)
    """

    keys: Listed[str]
    sequence_by: str | None = None
    scd: ScdType = 1
    deletes: bool | str = True
    columns: Listed[str] | None = None
    whole: bool = False
    within: str | None = None
    schema_mode: SchemaMode = "fail"

    @property
    def mode(self) -> str:
        return f"scd{self.scd}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keys:
            raise InvalidConfig("Changes are applied by key: name at least one key column (keys).")
        if not self.sequence_by and (self.scd == 2 or self.sequence_by is not None):
            raise InvalidConfig("Changes are applied in the order of a column: name it (sequence_by).")
        if self.within is not None:
            if self.scd == 2:
                raise InvalidConfig("A history (scd 2) has rows of a key in several partitions: leave out within.")
            self._refuse_no_expressions(within=self.within)
        if not isinstance(self.deletes, bool):
            self._refuse_no_expressions(deletes=self.deletes)
