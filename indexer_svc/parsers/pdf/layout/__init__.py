"""Which words, lines, columns, tables and headings do the characters of a page make?"""
