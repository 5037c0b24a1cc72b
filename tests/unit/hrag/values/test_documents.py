"""The body of a document that a client sends must be text, bytes or pages."""

import pytest

from hrag.errors import InvalidArgument
from hrag.types import Document, Page


@pytest.mark.parametrize("body", [None, bytearray(b"text"), 5])
def test_a_body_of_another_type_is_refused(body):
    with pytest.raises(InvalidArgument, match=f"body is a {type(body).__name__}; it must be text"):
        Document(body)


@pytest.mark.parametrize("body", ["text", b"text", (Page("text"),), [Page("text")]])
def test_text_bytes_and_pages_are_bodies(body):
    assert Document(body).body is body
