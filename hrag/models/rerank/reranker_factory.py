"""Creates the reranker that the settings name.

The reranker uses the HTTP client of the OpenAI SDK. The SDK is imported only if there is a
reranker, because the import takes half a second.
"""

from hrag.config import RetrieverSettings
from hrag.models.endpoint.endpoint_access import Variable, access
from hrag.models.rerank import Reranker
from hrag.models.rerank.instrumented_reranker import InstrumentedReranker
from hrag.models.rerank.request_forms import FORMS


def open_reranker(settings: RetrieverSettings) -> Reranker | None:
    """Returns the reranker at HRAG_RERANK_BASE_URL, with metrics; None if the setting is empty.

    Sends no request. If a setting is invalid, raises SettingsError, which names the environment
    variable.
    """
    if not settings.rerank_base_url:
        return None
    from hrag.models.rerank.endpoint_reranker import EndpointReranker  # noqa: PLC0415  # See the docstring.

    reranker = EndpointReranker(
        form=FORMS[settings.rerank_form],
        model=settings.rerank_model,
        access=access(
            Variable("HRAG_RERANK_BASE_URL", settings.rerank_base_url),
            Variable("HRAG_RERANK_API_KEY", settings.rerank_api_key),
            "HRAG_RERANK_BASE_URL",
        ),
        timeout_s=settings.rerank_timeout_s,
    )
    return InstrumentedReranker(reranker)
