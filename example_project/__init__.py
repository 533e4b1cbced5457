"""A lakehouse on real data: New York's flights of 2013, through PySpark, dbt and Python, in one Dagster graph.

`python -m example_project demo` runs it; `definitions.py` is the graph.
"""
