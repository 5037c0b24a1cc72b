"""How does a PDF become Markdown with sections, tables and pages?"""

from indexer_svc.parsers.pdf.pdf_file import parse_pdf

__all__ = ["parse_pdf"]
