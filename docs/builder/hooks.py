"""The hooks of mkdocs: they add the generated pages and change links to pages of the site."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.builder import grpc_reference, python_reference, repository, settings_reference

_REFERENCES = (grpc_reference, python_reference, settings_reference)
_shown: dict[str, str] = {}  # Maps a page of the site to the file of the repository it shows.


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference, README.md, and each file of the repository that a page links to."""
    for reference in _REFERENCES:
        for place, markdown in reference.pages().items():
            files.append(File.generated(config, place, content=markdown))
    pages = [f"{repository.DOCS}{each.src_uri}" for each in files.documentation_pages()]
    waiting = [repository.HOME, *(path for path in pages if (repository.ROOT / path).is_file())]
    while waiting:
        path = waiting.pop()
        place = repository.site_path(path)
        _shown[place] = path
        if files.get_file_from_path(place) is None:
            files.append(_file(place, path, config))
        linked = repository.linked(path) if path.endswith(".md") else ()
        waiting += [each for each in linked if repository.site_path(each) not in _shown]
    return files


def _file(place: str, path: str, config: MkDocsConfig) -> File:
    if path.endswith(repository.PICTURES):
        return File.generated(config, place, abs_src_path=str(repository.ROOT / path))
    content = repository.page_of(path)
    return File.generated(config, place, content=content, inclusion=InclusionLevel.NOT_IN_NAV)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Changes links to files of the repository into links to pages of the site."""
    place = page.file.src_uri
    path = _shown.get(place, "")
    if not path.endswith(".md"):
        return markdown
    folder = Path(place).parent.as_posix()
    linked = repository.with_site_links(path, markdown)
    return repository.outside_programs(
        linked, lambda prose: settings_reference.with_code_links(prose, folder)
    )


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Links the names of errors in the Python reference to their explanations."""
    return python_reference.with_error_links(page.file.src_uri, html)
