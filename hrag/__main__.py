"""Runs a command: `python -m hrag` is the same as `hrag`."""

from hrag.cli import main

if __name__ == "__main__":
    main()
