"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark.

Every public name is here, but for Spark's own (``duckrun.spark``) and the command line (``duckrun.cli``). ``__init__.pyi`` lists
them; each is imported when it is first used, so that the command line answers at once. Example::

    import duckrun

    with duckrun.connect("lake/") as s:
        s.sql("create table sales.orders as select 1 as id")
        s.table("sales.orders").toDF().show()
"""

from importlib.metadata import distributions as _distributions

import lazy_loader as _lazy

from duckrun import former as _former

if any((d.metadata["Name"] or "").lower() == "duckrun" for d in _distributions(name="duckrun")):
    raise ImportError(
        "The distribution 'duckrun' is installed too and owns the same import names: pip uninstall duckrun, then reinstall duckrun-dagster."
    )

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

_former.install()
