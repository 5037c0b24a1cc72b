"""Conversations: cutting them to the limits of the server, and searching without a chat model.

`Client.answer` takes the turns before a question, and the server makes the question stand alone. A
program that only searches, with or without a chat model of its own, can do it too:

    text = with_last_turns("and how is it treated?", history)
    result = client.search("acme", text)
"""

from hrag.text.conversation import with_last_turns
from hrag.values.conversation import latest_turns

__all__ = ["latest_turns", "with_last_turns"]
