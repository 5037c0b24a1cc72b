"""The door: opens the engine that the settings name. Only this module knows which there are."""

from hrag.config import EngineSettings
from hrag.engine.protocols import Engine


def open_engine(settings: EngineSettings) -> Engine:
    """Returns the engine that HRAG_ENGINE names. Opens no store yet."""
    # The clients of an engine need not load the libraries of all of them.
    if settings.engine == "postgres":
        from hrag.engine.postgres.engine import PostgresEngine  # noqa: PLC0415

        return PostgresEngine(settings)
    from hrag.engine.embedded.engine import EmbeddedEngine  # noqa: PLC0415

    return EmbeddedEngine(settings)
