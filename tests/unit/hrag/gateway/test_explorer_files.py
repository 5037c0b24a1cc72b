"""The explorer's files are complete, name no other host, and have a text for every key."""

import re
from pathlib import Path

import pytest

import hrag.gateway
from hrag.evaluation.summary import VERSION
from hrag.v1 import retriever_pb2
from hrag.values.formats import FORMATS, PYTHON

FOLDER = Path(hrag.gateway.__file__).parent / "explorer"
MODULES = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.js")}
# The files with the texts of each language.
ENGLISH, CHINESE = ("question_texts.js", "english.js"), ("chinese.js",)
CODE = "".join(text for name, text in MODULES.items() if name not in (*ENGLISH, *CHINESE))
INDEX = (FOLDER / "index.html").read_text("utf-8")

_ENTRY = re.compile(r'^  "([\w.]+)":\s+(.+?),$', re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"\"([a-z_]+\.[A-Za-z_]+)\"")
# The beginning of a key that ends with a value of the protocol, such as a finish reason.
_BEGINNING = re.compile(r"`([a-z_]+\.)\$\{")
_PLACEHOLDER = re.compile(r"\{\w+\}")


def _texts(names: tuple[str, ...]) -> dict[str, str]:
    return dict(entry for name in names for entry in _ENTRY.findall(MODULES[name]))


def test_both_languages_have_the_same_texts() -> None:
    english, chinese = map(_texts, (ENGLISH, CHINESE))
    assert list(english) == list(chinese)
    placeholders = {key: set(_PLACEHOLDER.findall(text)) for key, text in english.items()}
    assert placeholders == {key: set(_PLACEHOLDER.findall(text)) for key, text in chinese.items()}


def test_every_key_has_a_text_and_every_text_is_used() -> None:
    texts = _texts(ENGLISH)
    used = {key for key in _KEY.findall(CODE) if not key.endswith((".js", ".svg", ".json"))}
    beginnings = tuple(_BEGINNING.findall(CODE))
    assert used - set(texts) == set()
    assert [key for key in texts if key not in used and not key.startswith(beginnings)] == []


def test_every_limit_of_the_server_has_a_text() -> None:
    names = [field.json_name for field in retriever_pb2.Limits.DESCRIPTOR.fields]
    assert [name for name in names if f"limit.{name}" not in _texts(ENGLISH)] == []


def test_every_option_of_a_search_can_be_set() -> None:
    """All but a vector, which only programs have."""
    given = {"tenantId", "collection", "text", "filter", "vector"}
    names = {field.json_name for field in retriever_pb2.SearchRequest.DESCRIPTOR.fields}
    options = set(re.findall(r'name: "(\w+)"', MODULES["search_options.js"]))
    assert options == names - given


def test_limits_of_conversations_are_those_of_the_server() -> None:
    assert re.findall(r"\b\d{2,}\b", MODULES["conversation.js"]) == []


def test_the_guides_that_the_page_names_exist() -> None:
    names = re.findall(r'^  "([\w-]+)",$', MODULES["guides.js"], re.MULTILINE)
    guides = Path(__file__).parents[4] / "docs" / "guide"
    assert names
    assert [name for name in names if not (guides / f"{name}.md").exists()] == []


def test_data_is_shown_only_as_text() -> None:
    """No string becomes markup, code or style, and one module alone stores something."""
    forbidden = (
        *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser"),
        *("eval(", "new Function", "srcdoc", '"style"', "setTimeout"),
        *("sessionStorage", "indexedDB", "document.cookie"),
    )
    assert [word for word in forbidden if word in CODE] == []
    assert [name for name, text in MODULES.items() if "localStorage" in text] == [
        "browser_memory.js"
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_file_names_no_other_host(path: Path) -> None:
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text("utf-8"))
    assert set(addresses) <= {"http://www.w3.org"}  # This is the XML namespace of SVG.


def test_every_file_exists_and_is_used() -> None:
    named = set(re.findall(r'(?:href|src)="([^"]+)"', INDEX))
    named |= set(re.findall(r'from "\./([^"]+)"', "".join(MODULES.values())))
    assert {path.name for path in FOLDER.iterdir()} == named | {"index.html"}


def test_the_page_has_no_inline_script_or_style() -> None:
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script[^>]*>[^<]", INDEX) == []


def test_the_formats_that_are_not_markdown_are_those_of_source_code() -> None:
    first = next(at for at, format_ in enumerate(FORMATS) if format_.mime_type == PYTHON)
    code = {extension for format_ in FORMATS[first:] for extension in format_.extensions}
    text = re.search(r"const EXTENSIONS =(.+?);", MODULES["rich_text.js"], re.DOTALL)
    assert text
    words = "".join(re.findall(r'"([^"]+)"', text[1])).split()
    assert {f".{word}" for word in words} == code


def test_the_explorer_reads_the_version_of_reports_that_is_written() -> None:
    known = re.search(r"^const VERSION = (\d+);", MODULES["report_file.js"], re.MULTILINE)
    assert known
    assert int(known[1]) == VERSION
