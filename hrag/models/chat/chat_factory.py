"""Creates the chat model that the settings name.

The OpenAI SDK is imported only if a chat model is configured, because the import takes half a
second.
"""

from hrag.config import CommonSettings
from hrag.models.chat import ChatModel
from hrag.models.chat.instrumented_chat import InstrumentedChat
from hrag.models.chat.reasoning_tags import TagUse
from hrag.models.endpoint.endpoint_access import (
    OPENAI_BASE_URL,
    EndpointAccess,
    Variable,
    access,
)


def open_chat(settings: CommonSettings) -> ChatModel | None:
    """Returns the model that HRAG_CHAT_MODEL names, with metrics; None if the setting is empty.

    Sends no request. If a setting is invalid, raises SettingsError, which names the environment
    variable.
    """
    if not settings.chat_model:
        return None
    from hrag.models.chat.openai_chat import OpenAIChat  # noqa: PLC0415  # See the module's docstring.

    endpoint = _access(settings)
    chat = OpenAIChat(
        model=settings.chat_model,
        access=endpoint,
        timeout_s=settings.chat_timeout_s,
        tag_use=_tag_use(settings.chat_reasoning_tags, endpoint),
    )
    return InstrumentedChat(chat)


def _tag_use(tags: str, endpoint: EndpointAccess) -> TagUse | None:
    """Returns how the model marks reasoning in its text; None if it must be learned.

    OpenAI's own API never writes reasoning into the text.
    """
    if tags == "closing":
        return TagUse.CLOSING
    is_untagged = tags == "both" or endpoint.base_url.rstrip("/") == OPENAI_BASE_URL
    return TagUse.UNTAGGED if is_untagged else None


def _access(settings: CommonSettings) -> EndpointAccess:
    """Returns the URL and the key of the chat endpoint.

    OPENAI_API_KEY is used only for the endpoint at OPENAI_BASE_URL. It is never sent to another
    endpoint.
    """
    url = Variable("HRAG_CHAT_BASE_URL", settings.chat_base_url)
    key = Variable("HRAG_CHAT_API_KEY", settings.chat_api_key)
    if not url.value:
        url = Variable("OPENAI_BASE_URL", settings.openai_base_url)
        if not key.value:
            key = Variable("OPENAI_API_KEY", settings.openai_api_key)
    return access(url, key, "HRAG_CHAT_MODEL")
