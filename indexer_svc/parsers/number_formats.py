"""Writes the numbers of lists, headings and notes in the formats of office programs.

All functions are pure. The names of the formats are those of Open XML (ISO/IEC 29500-1, 17.18.59).
A number that a format cannot write, and a number in a format that is unknown here, is written in
decimal digits.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from indexer_svc.parsers.numerals import MAX_ROMAN, roman_numeral

# Word repeats a letter at most this many times: `z` is 26, `aa` is 27, `bb` is 28.
_MAX_REPEATS = 30
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_IRREGULAR_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_ALPHABETS: Mapping[str, str] = {
    "lowerLetter": _LATIN,
    "upperLetter": _LATIN.upper(),
    "russianLower": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "russianUpper": "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ",
    "chicago": "*†‡§",
    "hebrew2": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabicAlpha": "أبتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "arabicAbjad": "أبجدهوزحطيكلمنسعفصقرشتثخذضظغ",
    "ganada": "가나다라마바사아자차카타파하",
    "chosung": "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ",
    "aiueo": (
        "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホ"
        "マミムメモヤユヨラリルレロワヲン"
    ),
    "iroha": (
        "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマ"
        "ケフコエテアサキユメミシヱヒモセスン"
    ),
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸",
    "ideographZodiac": "子丑寅卯辰巳午未申酉戌亥",
    "greekLower": "αβγδεζηθικλμνξοπρστυφχψω",
    "greekUpper": "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ",
}
_DIGITS: Mapping[str, str] = {
    "decimalFullWidth": "０１２３４５６７８９",
    "decimalFullWidth2": "０１２３４５６７８９",
    "hindiNumbers": "०१२३४५६७८९",
    "thaiNumbers": "๐๑๒๓๔๕๖๗๘๙",
    "ideographDigital": "〇一二三四五六七八九",
    "japaneseDigitalTenThousand": "〇一二三四五六七八九",
    "taiwaneseDigital": "○一二三四五六七八九",
    "koreanDigital": "영일이삼사오육칠팔구",
    "koreanDigital2": "零一二三四五六七八九",
}
# For formats of counted numbers: the digits, and the words for 10, 100 and 1,000.
_COUNTING: Mapping[str, tuple[str, str]] = {
    "chineseCounting": ("〇一二三四五六七八九", "十百千"),
    "chineseCountingThousand": ("零一二三四五六七八九", "十百千"),
    "taiwaneseCounting": ("零一二三四五六七八九", "十百千"),
    "taiwaneseCountingThousand": ("零一二三四五六七八九", "十百千"),
    "japaneseCounting": ("〇一二三四五六七八九", "十百千"),
    "koreanCounting": ("영일이삼사오육칠팔구", "십백천"),
    "chineseLegalSimplified": ("零壹贰叁肆伍陆柒捌玖", "拾佰仟"),
    "ideographLegalTraditional": ("零壹貳參肆伍陸柒捌玖", "拾佰仟"),
    "japaneseLegal": ("〇壱弐参四伍六七八九", "拾百阡"),
}
_ALIASES: Mapping[str, str] = {
    "aiueoFullWidth": "aiueo",
    "irohaFullWidth": "iroha",
    "ideographEnclosedCircle": "decimalEnclosedCircle",
    "decimalEnclosedCircleChinese": "decimalEnclosedCircle",
}
# For formats of signs: the code points of the signs of the first numbers, as ranges.
_SIGNS: Mapping[str, tuple[range, ...]] = {
    "decimalEnclosedCircle": (range(0x2460, 0x2474), range(0x3251, 0x3260), range(0x32B1, 0x32C0)),
    "decimalEnclosedParen": (range(0x2474, 0x2488),),
    "decimalEnclosedFullstop": (range(0x2488, 0x249C),),
}
_MAX_PADDED_DIGITS = 9
_PADDED = re.compile(r"(0+1)\s*,")


def format_number(number: int, kind: str, pattern: str = "") -> str:
    """Returns a number in the format `kind`, for example `iv` for 4 in `lowerRoman`.

    `pattern` gives the first numbers of the format `custom`, for example `001, 002, 003, ...`.
    """
    kind = _ALIASES.get(kind, kind)
    if kind == "none":
        return ""
    text = str(number)
    if kind == "custom" and (match := _PADDED.match(pattern.strip())):
        text = text.zfill(min(len(match[1]), _MAX_PADDED_DIGITS))
    elif kind in _DIGITS and number >= 0:
        text = "".join(_DIGITS[kind][int(digit)] for digit in text)
    elif kind in _WRITERS and number > 0:
        text = _WRITERS[kind](number)
    return text


def _letters(alphabet: str, number: int) -> str:
    repeats, index = divmod(number - 1, len(alphabet))
    return alphabet[index] * (repeats + 1) if repeats < _MAX_REPEATS else str(number)


def _sign(ranges: tuple[range, ...], number: int) -> str:
    index = number - 1
    for signs in ranges:
        if index < len(signs):
            return chr(signs[index])
        index -= len(signs)
    return str(number)


def _counted(digits: str, units: str, number: int) -> str:
    """Returns a number as it is counted in Chinese, Japanese and Korean: 十二, 三百零四."""
    if number > 9_999:
        return str(number)
    words: list[str] = []
    is_gap = False
    for power in (3, 2, 1, 0):
        digit = number // 10**power % 10
        if digit == 0:
            is_gap = bool(words)
            continue
        if is_gap and digits[0] == "零":
            words.append(digits[0])
        is_gap = False
        is_silent_one = digit == 1 and power == 1 and not words
        words.append(("" if is_silent_one else digits[digit]) + (units[power - 1] if power else ""))
    return "".join(words)


def _roman(number: int) -> str:
    return roman_numeral(number) if number <= MAX_ROMAN else str(number)


def _cardinal(number: int) -> str:
    if number < len(_ONES):
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")
    if number < 1_000:
        hundreds, rest = divmod(number, 100)
        return f"{_ONES[hundreds]} hundred" + (f" {_cardinal(rest)}" if rest else "")
    return str(number)


def _ordinal(number: int) -> str:
    is_teen = number // 10 % 10 == 1
    ending = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _ordinal_words(number: int) -> str:
    words = _cardinal(number)
    if words.isdecimal():
        return _ordinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    ending = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return words[:start] + _IRREGULAR_ORDINALS.get(last, ending)


_WRITERS: Mapping[str, Callable[[int], str]] = {
    **{kind: partial(_letters, letters) for kind, letters in _ALPHABETS.items()},
    **{kind: partial(_counted, *words) for kind, words in _COUNTING.items()},
    **{kind: partial(_sign, ranges) for kind, ranges in _SIGNS.items()},
    "lowerRoman": _roman,
    "upperRoman": lambda number: _roman(number).upper(),
    "decimalZero": lambda number: f"{number:02d}",
    "ordinal": _ordinal,
    "cardinalText": lambda number: _cardinal(number).capitalize(),
    "ordinalText": lambda number: _ordinal_words(number).capitalize(),
    "hex": lambda number: f"{number:X}",
    "numberInDash": lambda number: f"- {number} -",
}
