"""Where the command `rose` starts: what must hold before anything else is imported."""

import os
import signal
import sys


def main() -> None:
    """Run the command line. ^C is no traceback, not even while the commands are imported."""
    try:
        _open_standard_streams()
        from rose.cli import main as run
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    run()


def _open_standard_streams() -> None:
    """Give the null device to standard streams that the caller closed.

    Else the next file that is opened takes the stream's number, and gets what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  # to the end


if __name__ == "__main__":
    main()
