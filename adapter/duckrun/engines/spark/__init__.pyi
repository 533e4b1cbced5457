from .engine import SparkEngine as SparkEngine
from .names import name_tables as name_tables
from .process.conditions import without_classes as without_classes
from .process.connect import RunServer as RunServer
from .process.jars import STORE_PACKAGES as STORE_PACKAGES, store_packages as store_packages
from .process.progress import Watch as Watch, page_settings as page_settings, watch as watch
from .process.session import (
    PYTHON_DAEMON as PYTHON_DAEMON,
    spark_session as spark_session,
    stop_spark_session as stop_spark_session,
)
from .sql import quote as quote
from .streams import stream_table as stream_table
from .types import as_utc as as_utc
