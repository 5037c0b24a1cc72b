"""The files of the repository that the site shows, and the links to them.

A page of `docs/` keeps its path. Another Markdown file of the repository becomes a page at the
file's path. A picture is copied. Any other text file becomes a page that shows its text. If the
site has a better page than the file's text, SHOWN_BY names that page.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import normpath, relpath

from docs.builder import notebook

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
HOME = "README.md"
PICTURES = (".svg", ".png")
_MARKDOWN = ".md"
# Maps files to the pages of the site that show the same content.
SHOWN_BY = {
    HOME: "index.md",
    ".env.example": "reference/settings.md",
    "protos/hrag/v1": "reference/grpc/index.md",
    "protos/hrag/v1/filter.proto": "reference/grpc/filter.md",
    "protos/hrag/v1/indexer.proto": "reference/grpc/indexer.md",
    "protos/hrag/v1/retriever.proto": "reference/grpc/retriever.md",
    "protos/hrag/v1/types.proto": "reference/grpc/types.md",
    "hrag/client/aio.py": "reference/python/client.md",
    "hrag/client/context.py": "reference/python/context.md",
    "hrag/client/tools.py": "reference/python/tools.md",
    "hrag/errors.py": "reference/python/errors.md",
    "hrag/filters.py": "reference/python/filters.md",
    "hrag/types.py": "reference/python/types.md",
}
# A picture with a light and a dark form, in the HTML that Git hosts show.
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)
# The theme of the site shows one of these images, also after the reader has switched the theme.
_THEME_IMAGES = r"![\g<alt>](\g<light>#only-light)![\g<alt>](\g<dark>#only-dark)"
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_LANGUAGES = {
    ".js": "js",
    ".json": "json",
    ".mjs": "js",
    ".proto": "protobuf",
    ".py": "python",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def site_path(path: str) -> str:
    """Returns the path in the site of the page for a file, given by its path in the repository."""
    if path in SHOWN_BY:
        return SHOWN_BY[path]
    place = path.removeprefix(DOCS)
    return place if place.endswith((_MARKDOWN, *PICTURES)) else f"{place}{_MARKDOWN}"


def linked(path: str) -> Iterator[str]:
    """Yields the paths of the files of the repository that a Markdown file links to."""
    for text in _prose(_read(path)):
        for link in _LINK.findall(_PICTURE.sub(_THEME_IMAGES, text)):
            target = _target(path, link)
            if target is not None:
                yield target


def with_site_links(path: str, markdown: str) -> str:
    """Returns the text of a Markdown file with links to the pages of the site."""

    def on_site(link: re.Match[str]) -> str:
        target = _target(path, link[0])
        if target is None:
            return link[0]
        anchor = "".join(link[0].partition("#")[1:])
        return relpath(site_path(target), Path(site_path(path)).parent.as_posix()) + anchor

    return outside_programs(
        markdown, lambda prose: _LINK.sub(on_site, _PICTURE.sub(_THEME_IMAGES, prose))
    )


def outside_programs(markdown: str, change: Callable[[str], str]) -> str:
    """Returns a text after `change` was applied to everything except blocks of code."""
    pieces = _FENCED.split(markdown)
    return "".join(piece if _FENCED.match(piece) else change(piece) for piece in pieces)


def page_of(path: str) -> str:
    """Returns the Markdown of the page for a file: its content, or its text in a code block."""
    text = _read(path)
    if path.endswith(_MARKDOWN):
        return text
    if path.endswith(".ipynb"):
        return notebook.markdown_of(text)
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return f"# {Path(path).name}\n\n`{path}` in the repository:\n\n````{language}\n{text}\n````\n"


def _prose(markdown: str) -> list[str]:
    return [piece for piece in _FENCED.split(markdown) if not _FENCED.match(piece)]


def _target(path: str, link: str) -> str | None:
    """Returns the file that a link in the Markdown file `path` points to.

    Returns None for a link to another host and for a missing file. mkdocs reports the latter.
    """
    name = link.partition("#")[0]
    if not name or ":" in name:
        return None
    target = normpath(Path(path).parent.joinpath(name).as_posix())
    is_shown = target in SHOWN_BY or (ROOT / target).is_file()
    return target if is_shown and not target.startswith("..") else None


def _read(path: str) -> str:
    return (ROOT / path).read_text("utf-8")
