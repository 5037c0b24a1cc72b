"""`hrag page` writes an image of a page of a document, perhaps with the lines of a chunk marked."""

import base64
from pathlib import Path
from typing import Annotated

import typer

from hrag.cli.export import OutputFile, check_file_output, open_output
from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Credentials,
    DocumentId,
    Indexer,
    Retriever,
    Tenant,
    connect,
    connection_options,
)
from hrag.cli.terminal import show_note
from hrag.values.ids import parse_chunk_id
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.page_images import DEFAULT_DPI, MAX_DPI, MIN_DPI, PageImage

_SVG = ".svg"
_MARK = 'fill="#ffd54a" fill-opacity="0.5"'


@connection_options
def page(
    credentials: Credentials,
    document_id: DocumentId,
    number: Annotated[
        int | None,
        typer.Option(
            "--page",
            metavar="N",
            min=1,
            help="The number of the page. Default: 1, or with --chunk its first page.",
            show_default=False,
        ),
    ] = None,
    chunk_id: Annotated[
        str,
        typer.Option(
            "--chunk",
            metavar="CHUNK_ID",
            help="A chunk of the document, as shown by hrag search, whose lines are marked. The "
            "file must end in .svg.",
            show_default=False,
        ),
    ] = "",
    dpi: Annotated[
        int, typer.Option(min=MIN_DPI, max=MAX_DPI, help="The resolution in dots per inch.")
    ] = DEFAULT_DPI,
    target: OutputFile = None,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Write an image of a page of a document: a PDF, or a picture whose text was recognised.

    The image is a PNG, or, if the file ends in .svg, an SVG that contains the PNG and the marks.
    The collection must keep originals: hrag collections create --keep-originals, or hrag serve
    --keep-originals.

    \b
    Examples:
      hrag page report.pdf --page 7 -o page.png
      hrag page report.pdf --chunk "report.pdf#0.12" -o page.svg
    """
    is_svg = target is not None and target.suffix.lower() == _SVG
    _check(document_id, chunk_id, target, is_svg=is_svg)
    with connect(credentials, indexer, retriever if chunk_id else "") as client:
        spans = []
        if chunk_id:
            chunk = client.get_chunk(tenant, chunk_id, collection=collection).chunk
            spans, number = [chunk.span], number or chunk.first_page
        number = number or 1
        image = client.get_page_image(
            tenant, document_id, number, spans, dpi=dpi, collection=collection
        )
    with open_output(target) as file:
        file.write(_svg(image) if is_svg else image.png)
    if image.boxes_note:
        show_note(image.boxes_note)
    if target is not None:
        marked = f", marks: {len(image.boxes)}" if chunk_id else ""
        show_note(
            f"wrote {target}, page {number}, {image.width_pixels} x {image.height_pixels} pixels"
            f"{marked}"
        )


def _check(document_id: str, chunk_id: str, target: Path | None, *, is_svg: bool) -> None:
    """Raises BadParameter or Failure if the options are wrong or do not fit each other."""
    check_file_output(target, "an image")
    if chunk_id and not is_svg:
        raise typer.BadParameter(
            "a PNG cannot be marked; with --chunk, give --output FILE.svg", param_hint="--output"
        )
    if chunk_id and parse_chunk_id(chunk_id).document_id != document_id:
        raise typer.BadParameter(
            f"{chunk_id} is no chunk of the document {document_id}", param_hint="--chunk"
        )


def _svg(image: PageImage) -> bytes:
    """Returns an image as SVG, with its boxes as marks."""
    width, height = image.width_pixels, image.height_pixels
    png = base64.b64encode(image.png).decode()
    marks = "".join(
        f'<rect x="{box.left * width:.1f}" y="{box.top * height:.1f}" '
        f'width="{(box.right - box.left) * width:.1f}" '
        f'height="{(box.bottom - box.top) * height:.1f}" {_MARK}/>'
        for box in image.boxes
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><image width="{width}" height="{height}" '
        f'href="data:image/png;base64,{png}"/>{marks}</svg>\n'
    ).encode()
