"""The numerals of lists: numbers, letters and Roman numerals. All functions are pure."""

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
MAX_ROMAN = 3_999
_MAX_LETTERS = 1_000_000


def numeral(number: int, kind: str) -> str:
    """Returns a number of the kind `1`, `a`, `A`, `i` or `I`, as in HTML.

    A number that the kind cannot write, for example zero, is written with digits.
    """
    if kind in ("a", "A") and 1 <= number <= _MAX_LETTERS:
        letters = _letters(number)
        return letters.upper() if kind == "A" else letters
    if kind in ("i", "I") and 1 <= number <= MAX_ROMAN:
        roman = roman_numeral(number)
        return roman.upper() if kind == "I" else roman
    return str(number)


def _letters(number: int) -> str:
    """Returns `a` for 1, `z` for 26, `aa` for 27 and so on."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return letters


def roman_numeral(number: int) -> str:
    """Returns a number from 1 to MAX_ROMAN as a Roman numeral in small letters."""
    parts = []
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        parts.append(letters * count)
    return "".join(parts)
