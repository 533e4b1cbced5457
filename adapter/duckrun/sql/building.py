"""Builders of small syntax trees, shared by the translation rules of ``for_spark`` and others."""

from __future__ import annotations

from sqlglot import exp

from duckrun.errors import UnsupportedFeature


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call of a function by the name it has in the target engine."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def number(value: int) -> exp.Expr:
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def untranslated(what: str, otherwise: str = "") -> UnsupportedFeature:
    return UnsupportedFeature(f"{what} is not translated to Spark's SQL; {otherwise}run this with engine: duckdb.")
