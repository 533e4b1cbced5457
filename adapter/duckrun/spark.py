"""Spark for users, dbt and Dagster: sessions, a server for several processes, streams, the engine.

Importing this module imports no PySpark and starts nothing. ``engines/spark/__init__.pyi`` lists
its names.

Example::

    from duckrun.spark import spark_session

    spark = spark_session(master="local[2]")
    with duckrun.connect("lake/", engine="spark", spark=spark) as s:
        s.sql("select 1 as n").show()
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckrun.engines.spark import *  # noqa: F403
else:
    from duckrun.engines.spark import __all__, __dir__, __getattr__  # noqa: F401
