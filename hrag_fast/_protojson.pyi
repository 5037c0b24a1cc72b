from collections.abc import Callable

class JsonSchema:
    """The fields of a protobuf message, and how they are named in ProtoJSON.

    Types may hold themselves: make the schemas first, then add their fields.
    """

    def add(
        self,
        number: int,
        name: str,
        kind: int,
        is_repeated: bool,
        has_presence: bool,
        inner: JsonSchema | dict[int, bytes] | Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Adds a field: its number (1 to 63), its JSON name, and its kind, a
        `FieldDescriptor.TYPE_...`.

        `inner` is the schema of a message, or a function from an encoded message to its JSON; for
        an enum the JSON of each number that has a name. A field without presence is left out if
        it has the default value. Raises ValueError for other numbers, and for kinds that no
        message of hrag has: groups, `fixed...`, `sint...`.
        """

    def write(self, encoded: bytes) -> bytes:
        """Returns an encoded message as JSON, in UTF-8.

        Fields that the schema does not have are left out. Strings must be UTF-8, as protobuf's
        serialisers guarantee. Raises ValueError for bytes that are no message, nested over 100
        deep, and for a field whose values do not stand together.
        """
