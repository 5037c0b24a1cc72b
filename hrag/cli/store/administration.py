"""How the commands that work on a whole store reach its engine, and how signals end them."""

import signal
from pathlib import Path

from hrag.cli.terminal.console import Failure
from hrag.config import EngineSettings, SettingsError, load
from hrag.engine import Engine, open_engine


def open_store(data_dir: Path | None = None) -> Engine:
    """Returns the engine of the store, which is in `data_dir` if it uses that.

    Opens nothing yet, but from now on signals interrupt the command. Which engine, and its
    limits, come from environment variables. Raises Failure if one of them has a wrong value.
    """
    interrupt_on_signals()
    try:
        settings = load(EngineSettings)
    except SettingsError as error:
        raise Failure(str(error)) from None
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    return open_engine(settings)


def interrupt_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end the command as Ctrl-C does: cleaned up, and recorded.

    A signal that is ignored stays so, as `nohup` wants it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
