"""Spec of row changes to apply to a table; one merge carries it out."""

from __future__ import annotations

from typing import Literal

from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, spec
from duckrun.values.choices import SchemaMode
from duckrun.values.layout import Layout
from duckrun.values.rows import Spec

ScdType = Literal[1, 2]
VALID_FROM, VALID_TO = "valid_from", "valid_to"


@spec
class ApplySpec(Layout, Spec):
    """Apply a sequence of row changes to a table, as a slowly changing dimension.

    With ``scd`` 1 the table holds the last state of each key. With ``scd`` 2 it holds all states,
    as half-open intervals ``[valid_from, valid_to)`` of the sequence; ``valid_to`` of the current
    one is NULL. Source: R. Kimball, M. Ross, The Data Warehouse Toolkit, Slowly Changing Dimension
    Techniques, types 1 and 2.

    Args:
        sequence_by: Column that orders the changes. Without it, for ``scd`` 1 alone, incoming rows
            are newer than the table's.
        deletes: Which changes delete their key. True: those whose ``_change_type`` is delete. A
            text: those that satisfy this condition over the columns of the changes, in ``dialect``.
            False: none, so that deletes are left out.
        columns: Columns to store; None takes all but those that a change query adds.
        whole: Rebuild the table from the changes.
        within: Condition on the rows to touch, such as one partition; for ``scd`` 1 alone. A key
            elsewhere stays, and a change whose row lies outside raises RowsOutsidePartition.

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
