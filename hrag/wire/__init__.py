"""Converts between domain values and protobuf messages, for the services and the SDK.

All functions are pure. `x_from(message)` returns the value that a message represents.
`x_message(value)` returns the message that represents a value. `x_request` and `x_response` return
the request and the response of a call. If a message has a fault that its type allows, for example
an unknown value of an enum or a missing oneof, these functions raise InvalidArgument. Names and
limits are checked by the code that uses the value.
"""
