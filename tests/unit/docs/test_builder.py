"""The site is built from manuals, repository files, comments in .proto files, and settings."""

import json
from pathlib import Path

import pytest

from docs.builder import (
    grpc_reference,
    notebook,
    python_reference,
    repository,
    settings_reference,
)
from hrag.v1 import filter_pb2, indexer_pb2, retriever_pb2, types_pb2

ROOT = Path(__file__).resolve().parents[3]
GUIDE = "docs/guide/search.md"
THEMES = ("light", "dark")


def test_a_picture_has_the_form_of_the_theme() -> None:
    html = """<picture>
  <source media="(prefers-color-scheme: dark)" srcset="docs/images/explorer-search-dark.png">
  <img alt="A search" src="docs/images/explorer-search-light.png">
</picture>"""
    light, dark = (f"images/explorer-search-{theme}.png#only-{theme}" for theme in THEMES)
    shown = repository.with_site_links("README.md", f"Text.\n\n{html}\n")
    assert shown == f"Text.\n\n![A search]({light})![A search]({dark})\n"


@pytest.mark.parametrize("path", ["README.md", "docs/guide/explorer.md"])
def test_every_picture_of_the_explorer_exists_in_both_forms(path: str) -> None:
    html = (ROOT / path).read_text("utf-8")
    named = [each for each in repository.linked(path) if each.endswith(repository.PICTURES)]
    assert len(named) == 2 * html.count("<picture>") > 0
    for theme in THEMES:
        assert sum(name.endswith(f"-{theme}.png") for name in named) == len(named) / 2


@pytest.mark.parametrize(
    ("link", "site_link"),
    [
        ("access.md", "access.md"),
        ("../operations/README.md#overload", "../operations/README.md#overload"),
        ("../../ARCHITECTURE.md", "../ARCHITECTURE.md"),
        ("../../README.md", "../index.md"),
        ("../../deploy/kubernetes.yaml", "../deploy/kubernetes.yaml.md"),
        ("../operations/alerts.yml", "../operations/alerts.yml.md"),
        ("../../.env.example", "../reference/settings.md"),
        ("../../protos/hrag/v1", "../reference/grpc/index.md"),
        ("../../protos/hrag/v1/types.proto#Chunk", "../reference/grpc/types.md#Chunk"),
        ("#reranking", "#reranking"),
        ("https://example.org/a.md", "https://example.org/a.md"),
        ("missing.md", "missing.md"),
        ("../../../outside.md", "../../../outside.md"),
    ],
)
def test_links_lead_to_pages_of_the_site(link: str, site_link: str) -> None:
    assert repository.with_site_links(GUIDE, f"[text]({link})") == f"[text]({site_link})"


def test_links_inside_code_blocks_stay_unchanged() -> None:
    program = "```sh\n[ -f x ](../../ARCHITECTURE.md)\n```"
    assert repository.with_site_links(GUIDE, program) == program


def test_a_page_shows_a_file_unchanged() -> None:
    page = repository.page_of("deploy/tls.yml")
    assert (ROOT / "deploy/tls.yml").read_text("utf-8") in page
    assert "````yaml\n" in page


def test_the_grpc_reference_explains_every_field_and_value() -> None:
    text = "\n".join(grpc_reference.pages().values())
    for module in (filter_pb2, indexer_pb2, retriever_pb2, types_pb2):
        file = module.DESCRIPTOR
        for message in file.message_types_by_name.values():
            assert [
                f for f in message.fields if f"{{ #{message.name}.{f.name} }}" not in text
            ] == []
        for enum in file.enum_types_by_name.values():
            assert [v for v in enum.values if f"{{ #{enum.name}.{v.name} }}" not in text] == []


def test_comments_keep_their_lists_and_link_names() -> None:
    page = grpc_reference.pages()["reference/grpc/retriever.md"]
    assert "Errors:\n\n* `NOT_FOUND`: the tenant has no collection with this name.\n* " in page
    assert "[`SearchResponse.fallback`](retriever.md#SearchResponse.fallback)" in page
    assert "[HRAG_HYBRID_FALLBACK](../settings.md#hrag_hybrid_fallback)=false" in page
    assert "**`filter`**{ #SearchRequest.filter } [`Filter`](filter.md#Filter) = 15" in page


@pytest.mark.parametrize(
    "row",
    [
        "| `HRAG_AUTH`{ #hrag_auth } |  | `none`, `api_key`, `jwt` | all |",
        "| `HRAG_THREADS`{ #hrag_threads } |  | 1 to 1,024 | all |",
        "| `HRAG_WORKERS`{ #hrag_workers } | `1` | 1 to 256 | retriever |",
        "| `HRAG_PARSER_TIMEOUT_S`{ #hrag_parser_timeout_s } | `30` | 1 to 600 | indexer |",
        "| `HRAG_HTTP_HOSTS`{ #hrag_http_hosts } |  |  | gateway |",
        "| `HRAG_KEYS`{ #hrag_keys } | `keys` |  |  |",
    ],
)
def test_settings_are_listed_with_their_allowed_values(row: str) -> None:
    (page,) = settings_reference.pages().values()
    assert row in page.splitlines()


def test_names_of_settings_in_manuals_link_to_their_reference() -> None:
    text = "Set `HRAG_AUTH`, [`HRAG_AUTH`](x.md), `HRAG_NO_SUCH`.\n# `HRAG_AUTH`\n"
    linked = settings_reference.with_code_links(text, "guide")
    assert linked == text.replace(
        "Set `HRAG_AUTH`", "Set [`HRAG_AUTH`](../reference/settings.md#hrag_auth)"
    )


def test_names_of_errors_outside_code_and_links_link_to_their_reference() -> None:
    html = "<h2>TooLarge</h2><p>Raises TooLarge, <code>TooLarge</code>, <a>TooLarge</a>.</p>"
    link = '<a href="errors.html#hrag.errors.TooLarge">TooLarge</a>'
    linked = python_reference.with_error_links("reference/python/client.md", html)
    assert linked == html.replace("Raises TooLarge", f"Raises {link}")
    assert python_reference.with_error_links("guide/access.md", html) == html


def test_a_notebook_is_shown_with_its_output() -> None:
    source = (ROOT / "docs/examples/search_modes.ipynb").read_text("utf-8")
    page = notebook.markdown_of(source)
    assert page.startswith("# Modes, sources and filters\n\n")
    assert "```text\n'builtin/use-multilingual-v3'\n```" in page


def test_a_notebook_with_a_failed_cell_is_refused() -> None:
    failure = {"output_type": "error", "ename": "ZeroDivisionError"}
    failed = {"cell_type": "code", "source": "1 / 0", "outputs": [failure]}
    with pytest.raises(ValueError, match="failed: ZeroDivisionError"):
        notebook.markdown_of(json.dumps({"cells": [failed]}))
