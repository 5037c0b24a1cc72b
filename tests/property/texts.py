"""Texts in all scripts, and the extractors of terms that tests compare with their twins."""

from hypothesis import example
from hypothesis import strategies as st

from hrag.text.analysis.variants import variants
from hrag_fast import Folding
from tests.twins.analysis import in_utf8

INVISIBLE = "\u00ad\u034f\u200c\u200d\u2060\ufeff\ufe00\ufe0f\U000e0100\U000e01ef"
ALPHABETS = (
    "abcXYZ019 ",
    ".-_/@+#",
    "型号数据库々〇",
    "カタナーｶﾅﾞ゛ぁ",
    "éïßﬁﷺ…½㎏㍿Σςİŉǰ",
    "IİıØłæ\u2010\u2011٢۴०๔",
    "\u0301\u0316\u0345\u3099\u094d\u20e3\u200b",
    INVISIBLE,
    "한글각ㄱㅏﾡￂ가\u11a8",
    "ไทยน้ำๆ๑ລາວខ្មែမြန်",
    "हिन्दीعربىЖжΩ",
    "😀🇩𠀀𝟗𝐀",
    " \n\t\u3000\u00a0\u2028",
)
CHARACTERS = st.one_of(
    *(st.sampled_from(alphabet) for alphabet in ALPHABETS),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.lists(
    st.one_of(
        CHARACTERS, st.tuples(CHARACTERS, st.integers(2, 70)).map(lambda run: run[0] * run[1])
    ),
    max_size=25,
).map("".join)
EXAMPLES = (
    *("C++", "c#", "3.11.7", "E-4711", "user@example.org", "/usr/local/bin", "snake_case"),
    *("型号AB-123的", "数据库", "カタカナ", "ﾊﾝｶｸ", "naïve", "ß", "ﬁ", "e.g.", "AT&T"),
    *("nai\u0308ve", "ｶﾞ", "1\ufe0f\u20e3", "\u0301a", "각", "가\u11a8", "น้ำ", "ŉ…½", "a" * 65),
    *("co\u00adop\u00ad", "e\u00ad\u0301", "\ufeff\u0301x", "ᄀ\u034f\u200dᅡ\u11a8", "می\u200cرود"),
    *("24V", "E4711", "24é", "e-mail", "U.S.A", "3.5mm", "10-20", "İstanbul", "i\u0307z", "œufs"),
    *("E\u20114711", "٢٤V", "1\u20e3", "مُحَمَّد", "porte-clés", "é" * 65, "é1" * 40, "a-b" * 40),
)


@in_utf8
def halved(word):
    """Returns the stem of a word, by a simple rule that sometimes returns an empty stem."""
    return word[: len(word) // 2] if word[0] in "abcexж" else word.rstrip("s")


ARGUMENTS = (
    (halved, {}),
    (halved, {"ascii_only": True}),
    (None, {}),
    (halved, {"folding": Folding.UNIFIED, "variants": variants}),
    (None, {"folding": Folding.TURKISH, "variants": variants}),
)


def examples(test):
    """Decorates a property test: all EXAMPLES are tested, in addition to the drawn texts."""
    for text in EXAMPLES:
        test = example(text)(test)
    return test
