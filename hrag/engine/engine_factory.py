"""Creates the engine that the settings name. Only this module knows which engines exist."""

from hrag.config import EngineSettings
from hrag.engine.protocols import Engine


def open_engine(settings: EngineSettings) -> Engine:
    """Returns the engine that HRAG_ENGINE names. Does not open the store yet."""
    # Only the engine in use is imported, so that the libraries of the other engine are not loaded.
    if settings.engine == "postgres":
        from hrag.engine.postgres.engine import PostgresEngine  # noqa: PLC0415

        return PostgresEngine(settings)
    from hrag.engine.embedded.engine import EmbeddedEngine  # noqa: PLC0415

    return EmbeddedEngine(settings)
