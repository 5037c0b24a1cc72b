"""Reads the comments of the .proto files from a descriptor set.

Descriptors at run time have no comments, so the build writes a descriptor set that has them.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2

_FILE = descriptor_pb2.FileDescriptorProto
_MESSAGE = descriptor_pb2.DescriptorProto
_ENUM = descriptor_pb2.EnumDescriptorProto
_SERVICE = descriptor_pb2.ServiceDescriptorProto
# The path of `syntax`, the first statement of a .proto file. The comment before this statement
# describes the whole file.
_FIRST_STATEMENT = [_FILE.SYNTAX_FIELD_NUMBER]
_CHILDREN: dict[Any, dict[int, str]] = {
    _FILE: {
        _FILE.MESSAGE_TYPE_FIELD_NUMBER: "message_type",
        _FILE.ENUM_TYPE_FIELD_NUMBER: "enum_type",
        _FILE.SERVICE_FIELD_NUMBER: "service",
    },
    _MESSAGE: {
        _MESSAGE.FIELD_FIELD_NUMBER: "field",
        _MESSAGE.NESTED_TYPE_FIELD_NUMBER: "nested_type",
        _MESSAGE.ENUM_TYPE_FIELD_NUMBER: "enum_type",
        _MESSAGE.ONEOF_DECL_FIELD_NUMBER: "oneof_decl",
    },
    _ENUM: {_ENUM.VALUE_FIELD_NUMBER: "value"},
    _SERVICE: {_SERVICE.METHOD_FIELD_NUMBER: "method"},
}


def read_descriptors() -> list[Any]:
    """Returns the FileDescriptorProto of each .proto file of hrag, with comments."""
    raw = (files("hrag.v1") / "descriptors.pb").read_bytes()
    descriptors = descriptor_pb2.FileDescriptorSet.FromString(raw).file
    # The descriptor set also contains imported files of other packages, because clients need them.
    return [file for file in descriptors if file.package == "hrag.v1"]


def read_comments() -> dict[str, str]:
    """Returns all comments of the .proto files.

    The key is the full name of the element that the comment describes, for example
    `hrag.v1.SearchRequest.text`. If the comment describes a file, the key is the file's name, for
    example `hrag/v1/retriever.proto`.
    """
    return {name: text for file in read_descriptors() for name, text in _comments_of(file)}


def _comments_of(file: Any) -> Iterator[tuple[str, str]]:
    for location in file.source_code_info.location:
        path = list(location.path)
        name = file.name if path == _FIRST_STATEMENT else _name_at(file, path)
        if name and location.leading_comments:
            yield name, _unwrap(location.leading_comments)


def _name_at(file: Any, path: list[int]) -> str:
    """Returns the full name of the element at `path`; an empty text if the element has no name.

    `path` leads from the file to a message, field or other element. It consists of pairs of
    numbers, as in a descriptor's SourceCodeInfo: the kind of a child, and its index.
    """
    node, names = file, [file.package]
    for kind, index in zip(path[::2], path[1::2], strict=False):
        children = _CHILDREN.get(type(node), {}).get(kind)
        if children is None:
            return ""
        node = getattr(node, children)[index]
        names.append(node.name)
    return ".".join(names) if len(path) % 2 == 0 else ""


def _unwrap(comment: str) -> str:
    """Returns the comment with each paragraph on one line; items of lists stay on their lines."""
    text = ""
    for line in comment.splitlines():
        words = line.strip()
        is_begin = not words or words.startswith("* ") or text.endswith("\n") or not text
        text += ("\n" if is_begin and text else " " if text else "") + words
    return text.replace("\n\n\n", "\n\n").strip()
