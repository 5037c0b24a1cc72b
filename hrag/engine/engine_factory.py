"""Creates the engine that the settings name. Only this module knows which engines exist."""

from hrag.config import EngineSettings
from hrag.engine.protocols import Engine


def open_engine(settings: EngineSettings) -> Engine:
    """Returns the engine that HRAG_ENGINE names. Does not open the store yet."""
    # An engine is imported only if it is used, so that libraries of other engines are not loaded.
    if settings.engine == "postgres":
        from hrag.engine.postgres.engine import PostgresEngine  # noqa: PLC0415

        return PostgresEngine(settings)
    from hrag.engine.embedded.engine import EmbeddedEngine  # noqa: PLC0415

    return EmbeddedEngine(settings)
