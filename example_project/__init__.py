"""A lakehouse on real data: New York's flights of 2013, in one Dagster graph.

The flights go through PySpark, dbt and Python. `python -m example_project demo` runs it;
`definitions.py` is the graph.
"""
