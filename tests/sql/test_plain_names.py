"""Names that DuckDB's tokenizer tells are those that sqlglot's tokens tell, and places are those of the text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlglot
from sqlglot import TokenType

from duckrun.sql.plain_names import dotted_names, words_in

TEXTS = [
    "select o.id, c.name from sales.orders as o join main.customers c on o.customer = c.id",
    'select "a""b".c, d . e -- x.y\nfrom /* q.r */ main."T 1" as t',
    "select 'a.b', 'it''s x.y', date'2020-01-01' from t where n = 1.5e3 and .5 < m",
    "select é.ü, \"漢.字\".b, '漢 x.y' from main.größe where größe.é = '漢'",
    "from t at (version => 3) select t.a[1].b, a::main.kind, list_filter(l, x -> x.y > 1)",
    "with recent as (from lake.sales.orders) select * exclude (recent.day) from recent",
    "create or replace table main.t as select * from read_csv('a.csv', header = true)",
    "merge into main.t using s on t.id = s.id when matched then update set v = s.v",
    "select",
    "",
]


def by_sqlglot(sql: str) -> Iterator[tuple[str, ...]]:
    chain: list[str] = []
    after_dot = False
    for token in sqlglot.tokenize(sql, read="duckdb"):
        is_name = token.token_type not in (TokenType.STRING, TokenType.NUMBER) and (
            token.token_type == TokenType.IDENTIFIER or token.text[:1].isalpha()
        )
        if token.token_type == TokenType.DOT:
            after_dot = True
            continue
        if chain and not (is_name and after_dot):
            yield tuple(chain)
            chain = []
        if is_name:
            chain.append(token.text)
        after_dot = False
    if chain:
        yield tuple(chain)


@pytest.mark.parametrize("sql", TEXTS)
def test_the_names_of_a_statement_are_those_of_another_tokenizer(sql: str) -> None:
    assert set(by_sqlglot(sql)) <= set(dotted_names(sql))


def test_a_string_or_a_comment_has_no_names() -> None:
    texts = ("'a.b'", "e'it\\'s a.b'", "$$a.b$$", "$tag$ a.b $tag$", "/* a.b */ 1", "1 -- a.b")
    assert [dotted_names(f"select {text}") for text in texts] == [(("select",),)] * len(texts)


@pytest.mark.parametrize("sql", TEXTS)
def test_the_place_of_a_word_is_its_place_in_the_text(sql: str) -> None:
    for word in words_in(sql):
        written = sql[word.start : word.end]
        assert not word.is_name or written in (word.text, '"' + word.text.replace('"', '""') + '"')
