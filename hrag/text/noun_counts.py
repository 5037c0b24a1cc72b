"""Numbers with their nouns, for messages and reports: `1 passage`, `2 passages`."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: `1 passage`, `2 passages`.

    An irregular plural must be given as `plural`, for example `leaves` for `leaf`.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
