"""Run the example from a terminal.

python -m example_project [--engine spark] [--format ducklake] [--writer delta_rs] [--names spark]
    demo | demo-next | ui | status
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m example_project", description="New York's flights of 2013")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="land January to November, and make what is missing or stale")
    commands.add_parser("demo-next", help="land December too, and late corrections of November")
    commands.add_parser("status", help="what is made, and what is to do")
    ui = commands.add_parser("ui", help="dagster dev on this graph")
    ui.add_argument("-p", "--port", type=int, default=3000)
    parser.add_argument(
        "--engine", choices=("duckdb", "spark"), help="spark: every table by Spark, in a lake of its own"
    )
    parser.add_argument(
        "--format", choices=("delta", "ducklake"), help="ducklake: the same tables in a DuckLake beside the other lake"
    )
    parser.add_argument(
        "--writer", choices=("auto", "delta_rs"), help="delta_rs: it makes DuckDB's data files, in a lake of its own"
    )
    parser.add_argument(
        "--names", choices=("spark",), help="spark: an asset by spark.table() and saveAsTable(), in a lake of its own"
    )
    arguments = parser.parse_args()
    for word in ("engine", "format", "writer", "names"):
        if getattr(arguments, word):
            os.environ[f"DUCKRUN_EXAMPLE_{word.upper()}"] = getattr(arguments, word)

    from example_project import settings
    from example_project.runner import demo

    if arguments.command == "demo":
        return demo.demo(settings.FIRST_MONTHS)
    if arguments.command == "demo-next":
        return demo.demo([*settings.FIRST_MONTHS, *settings.NEXT_MONTHS], corrected=settings.FIRST_MONTHS[-1:])
    if arguments.command == "status":
        return demo.status()
    return demo.ui(arguments.port)


if __name__ == "__main__":
    sys.exit(main())
