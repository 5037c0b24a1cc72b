"""Says how an optional part of hrag is installed. hrag is in no package registry."""


def install_command(extra: str) -> str:
    """Returns the commands that install `extra`: from the sources of hrag, and from its wheel."""
    return (
        f"pip install '.[{extra}]' in hrag's source folder, or "
        f"pip install 'WHEEL[{extra}]' with the path of hrag's wheel"
    )
