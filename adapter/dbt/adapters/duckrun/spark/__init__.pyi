from .cursor import SparkCursor as SparkCursor
from .session import SparkNodeSession as SparkNodeSession, start_engine as start_engine
from .stage import SparkStage as SparkStage, spark_type as spark_type
