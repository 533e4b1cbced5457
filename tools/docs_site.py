"""Hooks of `mkdocs.yml` that add pages to those under docs/.

They add README as the page of the tour, the notebook, the API reference, and every file of the
repository that a page links to. A broken link ends the build.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import griffe
import nbformat
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = get_plugin_logger("docs_site")
ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
BRACKETS = re.compile(r"\] \[(?=[A-Z])")  # options of SQL, as in [IF EXISTS] [RESTRICT], not a Markdown link
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)

# Pages of the site that are files elsewhere in the repository. Other linked files are added too.
MOVED = {
    "README.md": "tour.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
    "docs/notebook.ipynb": "notebook.md",
}


# ---------------------------------------------------------------- mkdocs calls these by their names
def on_files(files: Files, config: MkDocsConfig) -> Files:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in MOVED}
    texts |= {f"docs/{file.src_uri}": file.content_string for file in files if file.src_uri.endswith(".md")}
    linked = {target for name, text in texts.items() for target in _linked(name, text) if (ROOT / target).is_file()}
    pages = {
        _site_path(name): _page_of(name) for name in {*MOVED, *linked} if not name.startswith("docs/") or name in MOVED
    }
    for path, text in {**pages, **_reference()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return the page's text with links of the repository as links of the site."""
    path = page.file.src_uri
    origin = next((name for name, moved in MOVED.items() if moved == path), f"docs/{path}")

    def to_site(link: re.Match[str]) -> str:
        target, hash_, anchor = link[2].partition("#")
        if not target or "://" in target:
            return link[0]
        site = _site_path(_repository_path(origin, target))
        return f"{link[1]}{os.path.relpath(site, os.path.dirname(path) or '.')}{hash_}{anchor}{link[3]}"

    return _outside_of_code(markdown, lambda text: BRACKETS.sub("]&#32;[", LINK.sub(to_site, text)))


def on_page_content(html: str, page: Page, **_: Any) -> None:
    """Warn, which ends the build, if the site shows fewer lists or tables than GitHub would."""
    if page.file.src_uri.startswith(("api/", "notebook")):
        return
    # The site's Markdown needs a blank line before lists and tables, GitHub's does not.
    github = MarkdownIt("commonmark").enable("table").render(page.markdown or "")
    for tag in ("li", "tr", "h2", "h3"):
        here, there = (len(re.findall(f"<{tag}[ >]", text)) for text in (html, github))
        if here != there:
            log.warning(f"{page.file.src_uri}: {here} <{tag}> of {there}; put a blank line before each list and table")


# ---------------------------------------------------------------- files of the repository as pages
def _repository_path(origin: str, target: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(origin), target))


def _linked(origin: str, text: str) -> set[str]:
    targets = (link[2].partition("#")[0] for link in LINK.finditer(FENCED.sub("", text)))
    return {_repository_path(origin, target) for target in targets if target and "://" not in target}


def _site_path(name: str) -> str:
    if name in MOVED:
        return MOVED[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else f"source/{name}.md"


def _page_of(name: str) -> str:
    file = ROOT / name
    if file.suffix == ".md":
        return file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        return notebook_page(file)
    language = {".py": "python", ".sql": "sql", ".yml": "yaml"}.get(file.suffix, "text")
    title = "License" if name == "LICENSE" else name
    return f"# {title}\n\n```{language}\n{file.read_text(encoding='utf-8')}```\n"


def notebook_page(file: Path) -> str:
    """Return a notebook's text, code and outputs as one page."""
    parts = []
    for cell in nbformat.read(file, as_version=4).cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        parts += [_shown(output) for output in cell.get("outputs", []) if output.get("name") != "stderr"]
    return "\n\n".join(parts) + "\n"


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    if png := output.data.get("image/png"):
        return f'<img alt="output" src="data:image/png;base64,{png.replace(chr(10), "")}">'
    if html := output.data.get("text/html"):
        return "<div>\n" + "\n".join(line.strip() for line in html.splitlines() if line.strip()) + "\n</div>"
    return f"```text\n{output.data['text/plain']}\n```"


def _outside_of_code(text: str, change: Any) -> str:
    pieces, end = [], 0
    for code in FENCED.finditer(text):
        pieces += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, change(text[end:])])


# ---------------------------------------------------------------- the API reference
OF_DBT_ITSELF = ("node", "batch", "documented", "description", "strategy", "merge", "predicates")
FIRST = ("connect", "Session", "Frame", "Table", "Lake", "SQL")


def _reference() -> dict[str, str]:
    """Return a page for each package with its public names, as the package lists them."""
    duckrun = importlib.import_module("duckrun")
    names = [name for name in duckrun.__all__ if name != "DeltaTable"]  # DeltaTable is Table
    errors = [
        name
        for name in names
        if isinstance(getattr(duckrun, name), type) and issubclass(getattr(duckrun, name), Exception)
    ]
    specs = [name for name in names if name.endswith("Spec")]
    others = [name for name in names if name not in {*FIRST, *errors, *specs}]
    groups = {
        "A lake and its tables": FIRST,
        "Reads, writes and changes as values": specs,
        "What they hold and give": others,
        "Errors": errors,
    }
    spark = importlib.import_module("duckrun.spark")
    dagster = importlib.import_module("duckrun_dagster")
    return {
        "api/duckrun.md": "# duckrun\n\n" + "\n".join(_group(duckrun, *group) for group in groups.items()),
        "api/spark.md": "# duckrun.spark\n\n" + _group(spark, "Names", spark.__all__),
        "api/dagster.md": "# duckrun_dagster\n\n" + _group(dagster, "Names", dagster.__all__),
        "api/dbt.md": _dbt_page(),
    }


def _group(package: Any, title: str, names: Iterable[str]) -> str:
    return f"## {title}\n\n" + "\n".join(_entry(package, name) for name in names)


def _entry(package: Any, name: str) -> str:
    value = getattr(package, name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return f"### {name}\n\n```python\n{name} = {value!r}\n```\n"
    # A session and a frame are built in layers, of which users see one class.
    options = f"    options: {{heading: {name}, toc_label: {name}, inherited_members: {str(name in FIRST).lower()}}}\n"
    return f"::: {value.__module__}.{value.__qualname__}\n{options}"


def _dbt_page() -> str:
    """Return a page with the adapter's profile, the config of a node and ``project()``."""
    # griffe takes ``dbt`` for dbt's own package, so this page is made from the classes themselves.
    adapter = importlib.import_module("dbt.adapters.duckrun")
    config = importlib.import_module("dbt.adapters.duckrun.model.config").ModelConfig
    keys = [f"| `{each.name}` | `{each.type}` |" for each in fields(config) if each.name not in OF_DBT_ITSELF]
    return "\n\n".join(
        [
            "# dbt\n\nThe page [dbt](../dbt.md) shows them in use, with their other spellings.",
            f"## The profile\n\n{with_fences(inspect.getdoc(adapter.DuckrunCredentials) or '')}",
            "## The config of a node\n\n| key | value |\n|---|---|\n" + "\n".join(keys),
            f"## project{inspect.signature(adapter.project)}\n\n{with_fences(inspect.getdoc(adapter.project) or '')}",
        ]
    )


class Examples(griffe.Extension):
    """Extension that fences code in docstrings.

    Docstrings mark code by ``::`` and an indent, which Markdown takes for text.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_fences(obj.docstring.value)


class Specs(griffe.Extension):
    """Extension that shows the fields of specs as their parameters.

    griffe knows the decorator ``dataclasses.dataclass`` only.
    """

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:  # before griffe adds __init__
        for decorator in cls.decorators:
            if decorator.callable_path == "duckrun.values.checked.spec":
                dataclass = griffe.ExprName("dataclass", parent="dataclasses")
                if isinstance(decorator.value, griffe.ExprCall):
                    decorator.value.function = dataclass
                else:
                    decorator.value = dataclass


def with_fences(docstring: str) -> str:
    r"""Return a docstring with its indented blocks after ``::`` in fences.

    >>> print(with_fences("Gives one.\n\nExample::\n\n    f()\n\nMore."))
    Gives one.
    <BLANKLINE>
    Example:
    <BLANKLINE>
    ```python
    f()
    ```
    More.
    """

    def fenced(block: re.Match[str]) -> str:
        code = "\n".join(line[4:] for line in block[1].rstrip().split("\n"))
        language = "yaml" if re.match(r"[\w.]+:( |$)", code) else "python"
        return f":\n\n```{language}\n{code}\n```\n"

    return re.sub(r"::\n\n((?:[ ]{4}.*(?:\n|$)|\n)+)", fenced, docstring)
