"""Opens the engine for commands that work on a whole store."""

from pathlib import Path

from hrag.cli.terminal.console import Failure
from hrag.cli.terminal.signals import interrupt_on_signals
from hrag.config import EngineSettings, SettingsError, load
from hrag.engine import Engine, open_engine


def open_store(data_dir: Path | None = None) -> Engine:
    """Returns the engine of the store; its files are in `data_dir` if the engine uses files.

    Environment variables determine which engine it is, and its limits. Nothing is opened yet.
    From this call on, signals interrupt the command, so that it can clean up and write its audit
    entry. Raises Failure if a variable has a wrong value.
    """
    interrupt_on_signals()
    try:
        settings = load(EngineSettings)
    except SettingsError as error:
        raise Failure(str(error)) from None
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    return open_engine(settings)
