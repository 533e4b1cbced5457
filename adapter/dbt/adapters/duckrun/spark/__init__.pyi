from .session import SparkCursor as SparkCursor, SparkNodeSession as SparkNodeSession, start_engine as start_engine
from .stage import SparkStage as SparkStage, spark_type as spark_type
