"""Jars that a Spark session needs: Delta, and the file system of the lake's store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckrun.storage.storage import Storage

JARS_KEY = "duckrun.jars"
PACKAGES_KEY, EXCLUDES_KEY = "spark.jars.packages", "spark.jars.excludes"

HADOOP = "3.4.2"  # as in PySpark 4.1; hadoop-aws fits only the same version of hadoop-client
AWS_SDK = "2.29.52"  # the version that hadoop-aws 3.4.2 is built with

STORE_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "s3": (
        f"org.apache.hadoop:hadoop-aws:{HADOOP}",
        *(f"software.amazon.awssdk:{module}:{AWS_SDK}" for module in ("s3", "s3-transfer-manager", "sts")),
    ),
    "azure": (f"org.apache.hadoop:hadoop-azure:{HADOOP}",),
}
"""Maven coordinates by kind of store.

Google's connector has a usable jar only under a classifier, which Spark's packages cannot name.
Pass it as ``spark.jars``.
"""

# hadoop-aws depends on the whole SDK in one jar of 640 MB; S3 needs only the 12 MB above. Spark
# brings Netty and slf4j.
EXCLUDES = ("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:slf4j-api")


def with_jars(builder: Any, conf: Mapping[str, Any], packages: Sequence[str], storage: Storage | None) -> Any:
    """Add Delta, the passed packages and the store's to a session builder."""
    # The cluster has the jars then.
    if str(conf.get(JARS_KEY, "")).lower() == "provided" or conf.get(PACKAGES_KEY) == "":
        return builder
    from delta import configure_spark_with_delta_pip

    wanted = [p for p in str(conf.get(PACKAGES_KEY, "")).split(",") if p]
    wanted += [p for p in (*packages, *store_packages(storage)) if p not in wanted]
    if any("hadoop-aws" in package for package in wanted):
        excluded = [e for e in str(conf.get(EXCLUDES_KEY, "")).split(",") if e]
        builder = builder.config(EXCLUDES_KEY, ",".join([*excluded, *EXCLUDES]))
    return configure_spark_with_delta_pip(builder, wanted)


def store_packages(storage: Storage | None) -> tuple[str, ...]:
    """Return the packages for a lake's store; empty for a local one."""
    return () if storage is None else STORE_PACKAGES.get(storage.kind, ())


def without_stores(conf: Mapping[str, Any], packages: Sequence[str], storage: Storage | None) -> bool:
    """True if a session has only PySpark's own jars and Delta's, and so no object store."""
    elsewhere = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
    requested = any(key in conf for key in (JARS_KEY, PACKAGES_KEY, "spark.jars")) or any(
        "ClassPath" in key for key in conf
    )
    return not (requested or packages or store_packages(storage) or any(name in os.environ for name in elsewhere))
