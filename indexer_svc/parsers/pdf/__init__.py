"""How does a PDF become Markdown with sections, tables and pages, and how is a page shown?"""

from indexer_svc.parsers.pdf.page_image import page_image, page_words
from indexer_svc.parsers.pdf.pdf_file import parse_pdf

__all__ = ["page_image", "page_words", "parse_pdf"]
