"""Makes signals end a command as Ctrl-C does."""

import signal


def interrupt_on_signals() -> None:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does.

    A signal that is ignored stays ignored, because `nohup` relies on that.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
