"""Makes the gRPC reference: a page for each .proto file, from its comments."""

import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from docs.builder.settings_reference import with_setting_links
from hrag.gateway.reference.proto_comments import read_comments, read_descriptors

_FOLDER = "reference/grpc"
_INDEX = """\
# gRPC

The indexer writes, the retriever reads. These pages are made from the `.proto` files in
`protos/hrag/v1`. Clients in any language can be generated from these files. Both services also
support server reflection.

| method | what it does |
| --- | --- |
"""
_CODE = re.compile(r"`([^`\n]+)`")
_LIST_BELOW_TEXT = re.compile(r"^((?!\* ).+\n)(?=\* )", re.MULTILINE)
_PACKAGE = "hrag.v1."
_INDENT = " " * 4


def pages() -> dict[str, str]:
    """Returns the Markdown of each page of the reference by its path in the site."""
    files = read_descriptors()
    reference = _Reference(files, read_comments())
    made = {_page(file): reference.page(file) for file in files}
    return {f"{_FOLDER}/{name}": text for name, text in made.items()} | {
        f"{_FOLDER}/index.md": reference.index()
    }


def _page(file: FileDescriptorProto) -> str:
    return f"{Path(file.name).stem}.md"


def _top_level(file: FileDescriptorProto) -> set[str]:
    """Returns the names of the messages, enums and services that a file defines."""
    messages = {message.name for message in file.message_type}
    enums = {enum.name for enum in file.enum_type}
    return messages | enums | {service.name for service in file.service}


class _Reference:
    """The pages of the reference, made from all files and their comments."""

    def __init__(self, files: list[FileDescriptorProto], comments: dict[str, str]) -> None:
        self._comments = {_short(name): comment for name, comment in comments.items()}
        self._places = {
            name: _page(file)
            for file in files
            for name in self._comments
            if name.partition(".")[0] in _top_level(file)
        }
        self._methods = {
            method.name: f"{service.name}.{method.name}"
            for file in files
            for service in file.service
            for method in service.method
        }

    def index(self) -> str:
        """Returns the page that lists all methods, each with the first paragraph of its comment."""
        rows = [
            f"| {self._link(name)} | {self._prose(_first_paragraph(self._comments[name]))} |"
            for name in self._methods.values()
        ]
        return _INDEX + "\n".join(rows) + "\n"

    def page(self, file: FileDescriptorProto) -> str:
        """Returns the page of a .proto file: its services, messages and enums."""
        parts = [f"# {file.name}", self._prose(self._comments[file.name])]
        parts += [part for service in file.service for part in self._service(service)]
        parts += ["## Messages"]
        parts += [part for message in file.message_type for part in self._message(message)]
        parts += ["## Enums"] if file.enum_type else []
        parts += [part for enum in file.enum_type for part in self._enum(enum)]
        return "\n\n".join(parts) + "\n"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield _heading(2, service.name)
        yield self._prose(self._comments[service.name])
        for method in service.method:
            name = f"{service.name}.{method.name}"
            yield _heading(3, name, method.name)
            yield self._signature(method)
            yield self._prose(self._comments[name])

    def _signature(self, method: MethodDescriptorProto) -> str:
        request, response = _short(method.input_type), _short(method.output_type)
        streamed = ("stream " * method.client_streaming, "stream " * method.server_streaming)
        return f"{streamed[0]}{self._link(request)} → {streamed[1]}{self._link(response)}"

    def _message(self, message: DescriptorProto) -> Iterator[str]:
        if message.nested_type or message.enum_type:
            raise ValueError(f"{message.name} has types inside, which the reference does not show")
        yield _heading(3, message.name)
        yield self._prose(self._comments[message.name])
        for place, choice in enumerate(message.oneof_decl):
            members = [each.name for each in message.field if _is_member(each, place)]
            if members:
                explanation = self._prose(self._comments[f"{message.name}.{choice.name}"])
                yield f"One of {', '.join(f'`{member}`' for member in members)}. {explanation}"
        for field in message.field:
            name = f"{message.name}.{field.name}"
            yield self._term(name, f"{self._type(field)} = {field.number}")

    def _type(self, field: FieldDescriptorProto) -> str:
        repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
        rule = "repeated " * repeated + "optional " * field.proto3_optional
        if field.type_name:
            return rule + self._link(_short(field.type_name))
        return rule + FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield _heading(3, enum.name)
        yield self._prose(self._comments[enum.name])
        for value in enum.value:
            yield self._term(f"{enum.name}.{value.name}", f"= {value.number}")

    def _term(self, name: str, definition: str) -> str:
        """Returns a field or enum value with its comment, as a term of a definition list."""
        lines = self._prose(self._comments[name]).splitlines()
        comment = "\n".join(f"{_INDENT}{line}".rstrip() for line in lines).removeprefix(_INDENT)
        return f"**`{name.partition('.')[2]}`**{{ #{name} }} {definition}\n\n:   {comment}"

    def _link(self, name: str) -> str:
        place = self._places.get(name)
        code = f"`{name}`"
        return f"[{code}]({place}#{name})" if place else code

    def _prose(self, comment: str) -> str:
        """Returns the Markdown of a comment, with links to the names and settings in it."""

        def linked(code: re.Match[str]) -> str:
            name = self._methods.get(code[1], code[1])
            return f"[{code[0]}]({self._places[name]}#{name})" if name in self._places else code[0]

        prose = with_setting_links(_CODE.sub(linked, comment), _FOLDER)
        return _LIST_BELOW_TEXT.sub(r"\1\n", prose)


def _short(type_name: str) -> str:
    """Returns a type's name without `hrag.v1`; other packages stay in the name."""
    return type_name.removeprefix(".").removeprefix(_PACKAGE)


def _is_member(field: FieldDescriptorProto, place: int) -> bool:
    chosen = field.HasField("oneof_index") and field.oneof_index == place
    return chosen and not field.proto3_optional


def _heading(level: int, name: str, title: str = "") -> str:
    return f"{'#' * level} {title or name} {{ #{name} }}"


def _first_paragraph(comment: str) -> str:
    return comment.split("\n\n", maxsplit=1)[0].replace("\n", " ")
