"""SparkResource: the Spark session that the engine ``spark`` uses, started when something first needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster import ConfigurableResource
from pydantic import Field

from duckrun.errors import InvalidConfig
from duckrun.storage import Storage
from duckrun_dagster.compat import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource):
    """One Spark session a process, shared by every asset; no JVM starts before the first asset that needs it.

    Neither ``master`` nor ``remote`` means ``local[*]``.

    Example::

        SparkResource(master="local[2]", conf={"spark.sql.shuffle.partitions": "8"})
        SparkResource(remote="sc://spark.example.com:15002")
    """

    master: str | None = Field(
        default=None, description="A master for a session of this process: local[*], spark://…, yarn."
    )
    remote: str | None = Field(default=None, description="A Spark Connect address, sc://host:port. Excludes master.")
    conf: dict[str, str] = Field(default_factory=dict, description="Spark properties.")
    packages: list[str] = Field(default_factory=list, description="Maven coordinates to add to Delta's own.")
    connect_server: bool = Field(
        default=False, description="Talk to a Spark Connect server that this process starts on master."
    )

    def session(self, storage: Storage | None = None) -> SparkSession:
        """The process's Spark session; the first call starts it, with the credentials of ``storage``.

        Raises InvalidConfig without PySpark or Java, with both addresses set, and for an address that does not answer.
        """
        require_pyspark("SparkResource")
        if self.master and self.remote:
            raise InvalidConfig("SparkResource: master and remote exclude each other; set one of them.")
        if self.connect_server and self.remote:
            raise InvalidConfig("SparkResource: connect_server starts a server on master; remote names one that runs.")
        from duckrun.engines.spark import spark_session

        return spark_session(
            master=None if self.connect_server else self.master,
            remote=(self.master or "local[*]") if self.connect_server else self.remote,
            conf=self.conf,
            packages=tuple(self.packages),
            storage=storage,
        )
