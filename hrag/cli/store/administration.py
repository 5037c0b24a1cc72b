"""How the commands that work on a whole store reach its engine."""

from pathlib import Path

from hrag.cli.terminal.console import Failure
from hrag.cli.terminal.signals import interrupt_on_signals
from hrag.config import EngineSettings, SettingsError, load
from hrag.engine import Engine, open_engine


def open_store(data_dir: Path | None = None) -> Engine:
    """Returns the engine of the store, which is in `data_dir` if it uses that.

    Opens nothing yet, but from now on signals interrupt the command, so that it cleans up and
    leaves its audit line. Which engine, and its limits, come from environment variables. Raises
    Failure if one of them has a wrong value.
    """
    interrupt_on_signals()
    try:
        settings = load(EngineSettings)
    except SettingsError as error:
        raise Failure(str(error)) from None
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    return open_engine(settings)
