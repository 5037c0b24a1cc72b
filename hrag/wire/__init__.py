"""Converts between domain values and protobuf messages, for the services and the SDK.

All functions are pure. `x_from(message)` returns the value that a message represents,
`x_message(value)` returns the message of a value; `x_request` and `x_response` do the same for the
messages of a call. Errors that the message types cannot exclude, for example an unknown enum
number or a missing oneof, raise InvalidArgument here. Names and limits are checked by the code that
uses the value.
"""
