"""The docs' site: links of the repository become links of the site, and docstrings become Markdown."""

from __future__ import annotations

import nbformat
import pytest
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File
from mkdocs.structure.pages import Page

from tools import docs_site


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("tour.md", "docs/dbt.md", "dbt.md"),
        ("tour.md", "docs/images/asset_graph.png", "images/asset_graph.png"),
        ("tour.md", "CONTRIBUTING.md", "contributing.md"),
        ("tour.md", "LICENSE", "license.md"),
        ("session.md", "sql.md#types", "sql.md#types"),
        ("session.md", "../README.md#why", "tour.md#why"),
        ("session.md", "notebook.ipynb", "notebook.md"),
        ("dagster.md", "../example_project/dbt_assets.py", "source/example_project/dbt_assets.py.md"),
        ("dagster.md", "https://delta.io", "https://delta.io"),
        ("dagster.md", "#one-table", "#one-table"),
    ],
)
def test_a_link_between_files_leads_to_the_same_page_of_the_site(page: str, link: str, on_the_site: str) -> None:
    config = MkDocsConfig()
    config.load_dict({"site_name": "docs"})
    file = File(page, "docs", "site", use_directory_urls=False)
    text = f"See [that]({link}).\n\n```python\nf([1]({link}))\n```\n"
    changed = docs_site.on_page_markdown(text, Page(None, file, config))
    assert changed == f"See [that]({on_the_site}).\n\n```python\nf([1]({link}))\n```\n"


def test_examples_of_docstrings_are_code_blocks() -> None:
    html = MarkdownIt().render(docs_site.with_fences("Gives one.\n\nExample::\n\n    f()\n\n    g()\n\nMore."))
    assert '<pre><code class="language-python">f()\n\ng()\n</code></pre>' in html
    assert html.endswith("<p>More.</p>\n") and "::" not in html


def test_the_reference_of_a_session_and_of_a_frame_has_the_methods_of_all_their_layers() -> None:
    page = docs_site._reference()["api/duckrun.md"]
    for name in ("duckrun.session.Session", "duckrun.frame.Frame"):
        entry = page.partition(f"::: {name}\n")[2].partition(":::")[0]
        assert "inherited_members: true" in entry


def test_the_notebook_page_shows_its_outputs() -> None:
    notebook = nbformat.read(docs_site.ROOT / "docs" / "notebook.ipynb", as_version=4)
    page = docs_site.notebook_page(docs_site.ROOT / "docs" / "notebook.ipynb")
    printed = [o.text.rstrip() for cell in notebook.cells for o in cell.get("outputs", []) if o.get("name") == "stdout"]
    tables = sum("text/html" in o.get("data", {}) for cell in notebook.cells for o in cell.get("outputs", []))
    assert all(text in page for text in printed)
    assert page.count("<div>\n") == tables > 1
