"""Domain values to and from messages, both ways, for the services and the SDK alike.

Pure. `x_from(message)` reads a message, `x_message(value)` makes one. What a message
cannot say by its type (an unknown enum number, a missing oneof) is InvalidArgument here;
limits and names are checked by whoever acts on the value.
"""
