"""How the commands that work on a whole store reach its engine."""

from pathlib import Path

from hrag.cli.terminal.console import Failure
from hrag.config import EngineSettings, SettingsError, load
from hrag.engine import Administration, open_engine


def open_administration(data_dir: Path) -> Administration:
    """Returns the administration of the store in `data_dir`. Opens nothing yet.

    Which engine, and its limits, come from environment variables. Raises Failure if one of
    them has a wrong value.
    """
    try:
        settings = load(EngineSettings)
    except SettingsError as error:
        raise Failure(str(error)) from None
    return open_engine(settings.model_copy(update={"data_dir": data_dir})).administration()
