"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark.

This package exports every public name, except Spark's (``duckrun.spark``) and the command line
(``duckrun.cli``). ``__init__.pyi`` lists them. Each name is imported at first use, so that the
command line starts quickly.

Example::

    import duckrun

    with duckrun.connect("lake/") as s:
        s.sql("create table sales.orders as select 1 as id")
        s.table("sales.orders").toDF().show()
"""

import os as _os
import sys as _sys

import lazy_loader as _lazy


def _is_installed(distribution: str) -> bool:
    """True if a folder of ``sys.path`` holds the metadata of a distribution."""
    for folder in _sys.path:
        try:
            names = _os.listdir(folder or ".")
        except OSError:  # no folder, such as a zip file of the standard library
            continue
        for name in names:
            is_named = name.lower().startswith(f"{distribution}-") and name.endswith(".dist-info")
            # An interrupted uninstall leaves the folder without the file.
            if is_named and _os.path.isfile(_os.path.join(folder, name, "METADATA")):
                return True
    return False


# By folder names: importing importlib.metadata takes three times as long as the rest of this
# module.
if _is_installed("duckrun"):
    raise ImportError(
        "The distribution 'duckrun' is installed too and owns the same import names: pip uninstall "
        "duckrun, then reinstall duckrun-dagster."
    )

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
