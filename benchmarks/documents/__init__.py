"""What is lost if a document is printed as a PDF and read back? `make bench-documents`.

Documents with a known structure are printed with seeded layouts. The PDFs are read by the indexer's
parser process, and the text is compared with the document that was printed.
"""
