"""Converts between domain values and protobuf messages, for the services and the SDK.

Pure functions: `x_from(message)` decodes a message, `x_message(value)` encodes a value. What
the message types cannot enforce, such as an unknown enum number or a missing oneof, raises
InvalidArgument here. Names and limits are checked by the code that acts on the value.
"""
