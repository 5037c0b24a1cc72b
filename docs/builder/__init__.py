"""How does the site of documents come from what the repository holds?

`hooks` is what mkdocs calls. Pages are written for readers of the repository: their links lead
to its files. The site has a page for each such file, and generated pages for the reference.
"""
