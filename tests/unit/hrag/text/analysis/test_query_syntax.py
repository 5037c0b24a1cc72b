"""A text must contain the quoted phrases and the `+` words of a query."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import InvalidArgument
from hrag.text.analysis.query_syntax import MAX_REQUIRED, RequiredParts, parse, with_required
from hrag_fast import Folding


@pytest.mark.parametrize(
    ("query", "text", "required", "preferred"),
    [
        ("plain  words ", "plain  words ", (), ()),
        ('the "exact phrase" here', "the exact phrase here", (), ("exact phrase",)),
        (
            'What does "torque" mean for +E-4711?',
            "What does torque mean for E-4711?",
            ("E-4711",),
            ("torque",),
        ),
        ('请问"数据库"是什么', "请问 数据库 是什么", (), ("数据库",)),
        ("请问“数据库”是什么", "请问“数据库”是什么", (), ()),
        ('"exact  phrase"', "exact phrase", ("exact phrase",), ()),
        ('"a b", "c"?', "a b , c ?", ("a b", "c"), ()),
        ('"a  b" “c”', "a b “c”", (), ("a b",)),
        ('+x "a b"', "x a b", ("x", "a b"), ()),
        ('say +"a b" and "c"', "say a b and c", ("a b",), ("c",)),
        ("fix +E-4711 now", "fix E-4711 now", ("E-4711",), ()),
        ("What of +E-4711, and +C++?", "What of E-4711, and C++?", ("E-4711", "C++"), ()),
        ("+first", "first", ("first",), ()),
        ('+"a b" c', "a b c", ("a b",), ()),
        ("a\n+b", "a b", ("b",), ()),
        ("+x +x", "x x", ("x",), ()),
        # The following queries have no marked parts.
        ("C++ c+d", "C++ c+d", (), ()),
        ("1 + 2 ++", "1 + 2 ++", (), ()),
        ('say "hello', 'say "hello', (), ()),
        ("“a", "“a", (), ()),
        ('27" monitor or 24" screen', '27" monitor or 24" screen', (), ()),
        ('nothing in "" or " "', 'nothing in "" or " "', (), ()),
        ("", "", (), ()),
    ],
)
def test_a_query_is_parsed_into_its_text_and_its_marked_parts(query, text, required, preferred):
    assert parse(query) == (text, required, preferred)


@pytest.mark.parametrize(
    ("folding", "text", "part"),
    [
        (Folding.UNIFIED, "E\u20114711", "E-4711"),
        (Folding.UNIFIED, "٢٤ V", "24 v"),
        (Folding.TURKISH, "İSTANBUL'da", "istanbul"),
        (Folding.TURKISH, "ısparta", "ISPARTA"),
    ],
)
def test_texts_are_compared_by_the_folding_of_the_collection(folding, text, part):
    assert RequiredParts([part], folding).are_in([text])
    assert not RequiredParts([part], Folding.UNICODE).are_in([text])


def test_too_many_required_parts_are_refused():
    words = " ".join(f"+w{i}" for i in range(MAX_REQUIRED))
    assert len(parse(words).required) == MAX_REQUIRED
    with pytest.raises(InvalidArgument, match="17 quoted phrases and") as caught:
        parse(words + ' "one more"')
    assert caught.value.field == "text"


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("anything", ()),
        ("The Error\n\tE-4711 again", ("error e-4711", "AGAIN")),
        ("In C++ or so", ("c++",)),
        ("Python 3.11.7", ("3.11",)),
        ("大数据库", ("数据",)),
        ("用C++写", ("C++",)),
        ("ＦＵＬＬ width", ("full",)),
        ("cafe\u0301", ("café",)),
        ("Stra\u00dfe", ("STRASSE",)),
        ("concatenate cat", ("cat",)),
        ("⚠\ufe0fWarning", ("warning",)),
        ("co\u00adop\u00ad\u00aderate", ("cooperate",)),
        ("cooperate", ("co\u2060operate",)),
        ("a -> b", ("->",)),
    ],
)
def test_a_text_that_contains_the_required_parts_is_accepted(text, required):
    assert RequiredParts(required, Folding.UNICODE).are_in([text])


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("", ("a",)),
        ("concatenate", ("cat",)),
        ("cats", ("cat",)),
        ("cat\u00ads", ("cat",)),
        ("E-47110", ("E-4711",)),
        ("one two", ("two one",)),
        ("one two", ("one", "three")),
        ("well known", ("well-known",)),
        ("cafe\u0301", ("cafe",)),
        ("q\u0301x", ("x",)),
        ("हिन्दी", ("हिन",)),
        ("e" + "\u0363" * 50 + "x", ("x",)),
    ],
)
def test_a_text_that_lacks_a_required_part_is_rejected(text, required):
    assert not RequiredParts(required, Folding.UNICODE).are_in([text])


def test_a_required_part_must_be_inside_a_single_text():
    texts = "Terms of Service\n", "You agree."
    assert RequiredParts(["terms of service", "you agree"], Folding.UNICODE).are_in(texts)
    assert not RequiredParts(["service you"], Folding.UNICODE).are_in(texts)


@given(st.text("ab ", max_size=30), st.text("ab ", min_size=1, max_size=6))
def test_every_occurrence_of_a_part_is_checked(text, part):
    """Occurrences may overlap, and an occurrence inside a longer word does not count."""
    text, part = (" ".join(value.split()) for value in (text, part))
    expected = re.search(rf"(?<!\w(?=\w)){re.escape(part)}(?!(?<=\w)\w)", text) is not None
    assert not part or RequiredParts([part], Folding.UNICODE).are_in([text]) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a" * 100_000 + " " + "a" * 30_000, "a" * 30_000),
        ("ab " * 100_000, "ab " * 10_000 + "a"),
        ("a" * 200_000, "a" * 100_000),
    ],
)
def test_a_part_that_repeats_itself_is_found_as_fast_as_others(text, part):
    """Occurrences that begin or end inside a word are skipped without comparing all characters."""
    began = time.process_time()
    RequiredParts([part], Folding.UNICODE).are_in([text])
    assert time.process_time() - began < 2


SYNTAX = st.text(st.sampled_from("ab+\" .'狗"), max_size=20)


@given(SYNTAX, SYNTAX)
def test_a_query_can_require_the_parts_of_another_query_and_no_others(text, other):
    required = parse(other).required
    assert set(parse(with_required(text, required)).required) == set(required)
