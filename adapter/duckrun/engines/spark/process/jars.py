"""Jars that a Spark session needs beside its own: Delta, and the file system of the store that the lake is in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckrun.storage.storage import Storage

JARS_KEY = "duckrun.jars"
PACKAGES_KEY, EXCLUDES_KEY = "spark.jars.packages", "spark.jars.excludes"

HADOOP = "3.4.2"  # that of PySpark 4.1; hadoop-aws fits its own version of hadoop-client only
AWS_SDK = "2.29.52"  # what hadoop-aws 3.4.2 is built with

STORE_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "s3": (
        f"org.apache.hadoop:hadoop-aws:{HADOOP}",
        *(f"software.amazon.awssdk:{module}:{AWS_SDK}" for module in ("s3", "s3-transfer-manager", "sts")),
    ),
    "azure": (f"org.apache.hadoop:hadoop-azure:{HADOOP}",),
}
"""Maven coordinates by kind of store. Google's connector has a usable jar under a classifier only, which Spark's
packages cannot name: it is given as ``spark.jars``."""

# hadoop-aws asks for the whole SDK in one jar of 640 MB, of which S3 needs the 12 MB above. Netty and slf4j are Spark's.
EXCLUDES = ("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:slf4j-api")


def with_jars(builder: Any, conf: Mapping[str, Any], packages: Sequence[str], storage: Storage | None) -> Any:
    """A session builder that brings Delta, the packages given, and the store's, unless the cluster has them."""
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
    """What Spark needs to reach a lake's store; nothing for a local one."""
    return () if storage is None else STORE_PACKAGES.get(storage.kind, ())


def without_stores(conf: Mapping[str, Any], packages: Sequence[str], storage: Storage | None) -> bool:
    """True if a session has PySpark's own jars and Delta's, and so no object store's."""
    elsewhere = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
    asked = any(key in conf for key in (JARS_KEY, PACKAGES_KEY, "spark.jars")) or any(
        "ClassPath" in key for key in conf
    )
    return not (asked or packages or store_packages(storage) or any(name in os.environ for name in elsewhere))
