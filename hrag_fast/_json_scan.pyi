"""Types and documentation of the compiled `json_size`."""

def json_size(raw: bytes) -> tuple[int, int]:
    """Returns how many values a JSON document has at most, and how deep it is nested.

    The values are the members of all objects and the elements of all arrays. An empty object or
    array counts as one value more. The depth is the count of objects and arrays around the
    innermost value, including the document itself. The document need not be valid: a parser builds
    no more values, and nests no deeper, before it finds the error. Takes time linear in the
    document, about 1 ms for each megabyte. Releases the GIL. A wrong type raises TypeError.
    """
