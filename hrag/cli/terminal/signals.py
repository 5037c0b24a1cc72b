"""How signals end a command."""

import signal


def interrupt_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end the command as Ctrl-C does, by KeyboardInterrupt.

    A signal that is ignored stays so, as `nohup` wants it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
