"""From settings to a chat model.

The OpenAI SDK is imported only where there is one: it costs half a second.
"""

from hrag.chat import ChatModel
from hrag.chat.instrumented import MeteredChat
from hrag.config import CommonSettings
from hrag.endpoint.access import Access, Variable, access


def open_chat(settings: CommonSettings) -> ChatModel | None:
    """The model that HRAG_CHAT_MODEL names, not contacted yet; None where it names none.

    Raises SettingsError, which names the variable.
    """
    if not settings.chat_model:
        return None
    from hrag.chat.openai import OpenAIChat  # noqa: PLC0415  # see above

    chat = OpenAIChat(
        model=settings.chat_model, access=_access(settings), timeout_s=settings.chat_timeout_s
    )
    return MeteredChat(chat)


def _access(settings: CommonSettings) -> Access:
    """OPENAI_API_KEY goes to no other endpoint than the one that OPENAI_BASE_URL names."""
    url = Variable("HRAG_CHAT_BASE_URL", settings.chat_base_url)
    key = Variable("HRAG_CHAT_API_KEY", settings.chat_api_key)
    if not url.value:
        url = Variable("OPENAI_BASE_URL", settings.openai_base_url)
        if not key.value:
            key = Variable("OPENAI_API_KEY", settings.openai_api_key)
    return access(url, key, "HRAG_CHAT_MODEL")
