"""Types and documentation of the compiled `JsonSchema`."""

from collections.abc import Callable

class JsonSchema:
    """The fields of a protobuf message, and their names in ProtoJSON.

    A message may contain messages of the same type. So create the schemas of all message types
    first, then add their fields.
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
        """Adds a field, with its number (1 to 63), its JSON name, and its kind.

        The kind is a `FieldDescriptor.TYPE_...`. For a message, `inner` is its schema, or a
        function from an encoded message to its JSON. For an enum, `inner` maps the number of each
        value that has a name to the value's JSON. A field without presence is left out if it has
        the default value. Raises ValueError for a field number that is not from 1 to 63, and for
        kinds that no message of hrag has: groups, `fixed...`, `sint...`.
        """

    def write(self, encoded: bytes) -> bytes:
        """Returns an encoded message as JSON, in UTF-8.

        Fields that the schema does not have are left out. Strings must be UTF-8, as protobuf's
        serialisers guarantee. Raises ValueError for bytes that are no message, for messages that
        are nested more than 100 deep, and for a repeated field whose values do not directly follow
        each other.
        """
