"""The comments of the .proto files, by the full names of what they describe.

Descriptors at run time have no comments. The build writes a descriptor set that has them.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2

_FILE = descriptor_pb2.FileDescriptorProto
_MESSAGE = descriptor_pb2.DescriptorProto
_ENUM = descriptor_pb2.EnumDescriptorProto
_SERVICE = descriptor_pb2.ServiceDescriptorProto
_FIRST_STATEMENT = [_FILE.SYNTAX_FIELD_NUMBER]  # The file's own comment stands before it.
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
    """Returns the FileDescriptorProto of each of our .proto files, with comments."""
    raw = (files("hrag.v1") / "descriptors.pb").read_bytes()
    found = descriptor_pb2.FileDescriptorSet.FromString(raw).file
    return [each for each in found if each.package == "hrag.v1"]  # Imports are there for clients.


def read_comments() -> dict[str, str]:
    """Returns the comments; a full name such as `hrag.v1.SearchRequest.text` is the key.

    The comment of a file itself has the file's name as the key, such as
    `hrag/v1/retriever.proto`.
    """
    return {name: text for file in read_descriptors() for name, text in _comments_of(file)}


def _comments_of(file: Any) -> Iterator[tuple[str, str]]:
    for location in file.source_code_info.location:
        path = list(location.path)
        name = file.name if path == _FIRST_STATEMENT else _name_at(file, path)
        if name and location.leading_comments:
            yield name, _unwrapped(location.leading_comments)


def _name_at(file: Any, path: list[int]) -> str:
    """The full name of what the path leads to; empty if that has no name of its own."""
    node, names = file, [file.package]
    for kind, index in zip(path[::2], path[1::2], strict=False):
        children = _CHILDREN.get(type(node), {}).get(kind)
        if children is None:
            return ""
        node = getattr(node, children)[index]
        names.append(node.name)
    return ".".join(names) if len(path) % 2 == 0 else ""


def _unwrapped(comment: str) -> str:
    """Lines of a paragraph become one line; those of a list stay."""
    text = ""
    for line in comment.splitlines():
        words = line.strip()
        is_begin = not words or words.startswith("* ") or text.endswith("\n") or not text
        text += ("\n" if is_begin and text else " " if text else "") + words
    return text.replace("\n\n\n", "\n\n").strip()
