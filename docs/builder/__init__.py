"""How is the documentation site made from the files of the repository?

mkdocs calls the functions of `hooks`. The pages in `docs/` are written for readers of the
repository, so they link to its files. The site has a page for each linked file, and generated
reference pages.
"""
