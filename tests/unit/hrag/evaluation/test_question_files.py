"""Questions are read from BEIR folders, JSON lines and tables.

An error names the file and the line.
"""

import json
from pathlib import Path

import pytest

from hrag.errors import InvalidArgument
from hrag.evaluation.question_corpus import document_id_of, read_corpus
from hrag.evaluation.question_files import read_questions
from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.types import MARKDOWN, PLAIN_TEXT

FOX = TextSpan("fox", 4, 9)


def written(path: Path, *rows: object) -> Path:
    """Writes rows as lines, each a text or a JSON object; returns the path of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_questions_in_json_lines_may_have_spans_quotes_and_documents(tmp_path: Path) -> None:
    path = written(
        tmp_path / "q.jsonl",
        {"qid": "a", "query": "Wo?", "gold": [{"doc_id": "fox", "start": 4, "end": 9}]},
        "",
        {"query": "怎么?", "gold": [{"quote": "a  b"}, {"quote": "c", "doc_id": "fox"}]},
        {"_id": 3, "text": "Who?", "answer": "He", "gold": [{"doc_id": "fox", "relevance": 2}]},
        {"query": "Why?"},
    )
    assert read_questions(path) == (
        Question("a", "Wo?", (GoldSpan(FOX),)),
        Question("line-3", "怎么?", (GoldQuote("a  b"), GoldQuote("c", "fox"))),
        Question("3", "Who?", (GoldDocument("fox", 2),), "He"),
        Question("line-5", "Why?"),
    )


@pytest.mark.parametrize("header", ["question;quote", '"Question";"Quote"', "quote;question"])
def test_a_table_of_a_spreadsheet_program_may_have_semicolons(tmp_path: Path, header: str) -> None:
    rows = ['"What; who?";"a, b"', "Where?;c"]
    if header.startswith("quote"):
        rows = ['"a, b";"What; who?"', "c;Where?"]
    path = written(tmp_path / "q.csv", "\ufeff" + header, *rows)
    assert read_questions(path) == (
        Question("line-2", "What; who?", (GoldQuote("a, b"),)),
        Question("line-3", "Where?", (GoldQuote("c"),)),
    )


def test_commas_are_preferred_where_both_separate_a_question(tmp_path: Path) -> None:
    path = written(tmp_path / "q.csv", "question,quote;note", "Who?,he; she")
    with pytest.raises(InvalidArgument, match="header is 'question,quote;note'"):
        read_questions(path)
    path = written(tmp_path / "q.csv", "question,quote,a;b", "Who?,he; she,")
    assert read_questions(path)[0].gold == (GoldQuote("he; she"),)


def test_a_table_in_another_encoding_and_a_folder_without_questions_say_what_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes("question;quote\nWo hängt er?;über der Tür\n".encode("latin-1"))
    with pytest.raises(InvalidArgument, match=r"it is not UTF-8 \(.*\); spreadsheet programs call"):
        read_questions(path)
    path.unlink()
    with pytest.raises(InvalidArgument, match=r"the folder has no queries\.jsonl; questions are"):
        read_questions(tmp_path)


def test_a_folder_with_queries_is_read_and_its_spans_are_checked(tmp_path: Path) -> None:
    written(tmp_path / "corpus.jsonl", {"doc_id": "fox", "text": "The fox"})
    queries = {"qid": "a", "query": "?", "gold": [{"doc_id": "fox", "start": 4, "end": 7}]}
    written(tmp_path / "queries.jsonl", queries)
    assert read_questions(tmp_path)[0].gold == (GoldSpan(TextSpan("fox", 4, 7)),)
    queries["gold"][0]["end"] = 8
    written(tmp_path / "queries.jsonl", queries)
    with pytest.raises(InvalidArgument, match="line 1: end is '8'; it must be at most 7"):
        read_questions(tmp_path)


def test_from_a_beir_folder_the_relevant_documents_of_a_split_are_read(tmp_path: Path) -> None:
    written(tmp_path / "queries.jsonl", *({"_id": f"q{n}", "text": f"{n}?"} for n in range(4)))
    qrels = ("query-id\tcorpus-id\tscore", "q1\td/1\t2", "q1\td2\t1", "q2\td2\t0", "q0\td3\t1")
    written(tmp_path / "qrels" / "test.tsv", *qrels)
    assert read_questions(tmp_path) == (
        Question("q0", "0?", (GoldDocument("d3"),)),
        Question("q1", "1?", (GoldDocument(document_id_of("d/1"), 2), GoldDocument("d2"))),
    )
    with pytest.raises(InvalidArgument, match=r"dev\.tsv: no such split; .* has test"):
        read_questions(tmp_path, "dev")


def test_rows_of_a_table_with_the_same_question_are_joined(tmp_path: Path) -> None:
    path = written(
        tmp_path / "q.csv",
        "\ufeffQuestion,document_id,quote,answer",
        "Wo?,fox,,Da",
        '"Was, wie?",,"a\nb",',
        "Wo?,hen,,",
        ",,,",
        "Wer?,fox,c,",
    )
    assert read_questions(path) == (
        Question("line-2", "Wo?", (GoldDocument("fox"), GoldDocument("hen")), "Da"),
        Question("line-4", "Was, wie?", (GoldQuote("a\nb"),)),
        Question("line-7", "Wer?", (GoldQuote("c", "fox"),)),
    )
    tabs = written(tmp_path / "q.tsv", "query\tdoc_id", "Wo?\tfox")
    assert read_questions(tabs) == (Question("line-2", "Wo?", (GoldDocument("fox"),)),)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("q.jsonl", ['{"query": "?"}', "{"], "line 2: the line is not JSON"),
        ("q.jsonl", ["[]"], "line 1: the line is not a JSON object; it must be a JSON object"),
        ("q.jsonl", [{"qid": "a"}], "line 1: query is missing; it must be a text"),
        ("q.jsonl", [{"query": "  "}], "line 1: query is '  '; it must be a text"),
        ("q.jsonl", [{"query": "?", "gold": {}}], "gold is '{}'; it must be a list of objects"),
        ("q.jsonl", [{"query": "?", "gold": [{"start": 1}]}], "doc_id is missing"),
        (
            "q.jsonl",
            [{"query": "?", "gold": [{"doc_id": "d", "start": 5, "end": 5}]}],
            "end is '5'; it must be a whole number of at least 6",
        ),
        (
            "q.jsonl",
            [{"query": "?", "gold": [{"doc_id": "d", "start": -1, "end": 5}]}],
            "start is '-1'; it must be a whole number of at least 0",
        ),
        (
            "q.jsonl",
            [{"query": "?", "gold": [{"doc_id": "d"}, {"quote": "x"}]}],
            "q.jsonl, line 1: gold of question 'line-1' has both whole documents and texts",
        ),
        (
            "q.csv",
            ["question,document_id,quote", "?,fox,", "!,fox,", "?,,x"],
            "q.csv, line 4: gold of question 'line-2' has both whole documents and texts",
        ),
        (
            "q.jsonl",
            ['{"query": "?\\ud83d"}'],
            "line 1: query is '?\\ud83d'; it must be valid Unicode",
        ),
        (
            "q.jsonl",
            ['{"query": "?"}', '{"query": "!", "gold": [{"quote": "\\udc00"}]}'],
            "line 2: quote is '\\udc00'; it must be valid Unicode, without lone surrogates",
        ),
        (
            "q.jsonl",
            [{"qid": "a", "query": "?"}] * 2,
            "line 2: qid is 'a'; it must be different from the id in line 1",
        ),
        ("q.jsonl", [""], "has no questions"),
        ("q.csv", ["frage,document_id", "x,y"], "line 1: header is 'frage,document_id'"),
        ("q.csv", ["question", "x"], "a column document_id or doc_id or document or quote"),
        ("q.csv", ["question,quote", "x,y,z"], "line 2: row is '3 cells'; it must be at most 2"),
        ("q.csv", ["question,quote", ",y"], "line 2: question is missing"),
        ("q.csv", ["question,quote", '"x" z,y'], "line 2: "),
        ("q.pdf", ["x"], "its name ends in '.pdf'; questions are read from a BEIR folder"),
    ],
)
def test_the_error_for_an_invalid_file_names_line_and_field(
    tmp_path: Path, name: str, rows: list[object], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_questions(written(tmp_path / name, *rows))
    assert message in caught.value.message
    assert caught.value.field


@pytest.mark.parametrize(
    ("line", "message"),
    [("q1\td1", "line 2: line is 'q1\\td1'"), ("q1\td1\tx", "line 2: score is 'x'")],
)
def test_invalid_relevance_is_refused(tmp_path: Path, line: str, message: str) -> None:
    written(tmp_path / "queries.jsonl", {"_id": "q1", "text": "?"})
    written(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", line)
    with pytest.raises(InvalidArgument) as caught:
        read_questions(tmp_path)
    assert message in caught.value.message


def test_the_error_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"none\.jsonl: no such file"):
        read_questions(tmp_path / "none.jsonl")
    with pytest.raises(InvalidArgument, match=r"the folder has no queries\.jsonl"):
        read_questions(tmp_path)
    (tmp_path / "q.jsonl").write_bytes(b'{"query": "\xff"}')
    with pytest.raises(InvalidArgument, match=r"q\.jsonl: it is not UTF-8"):
        read_questions(tmp_path / "q.jsonl")


def test_a_corpus_keeps_its_texts_and_gets_valid_ids(tmp_path: Path) -> None:
    path = written(
        tmp_path / "corpus.jsonl",
        {"_id": "MED-1", "title": "One", "text": "plain"},
        {"doc_id": "a/b", "title": "Two", "lang": "de", "text": "# Two\n\ntext"},
        {"doc_id": "empty", "title": "Three", "text": ""},
    )
    plain, markdown, empty = read_corpus(tmp_path)
    assert (plain.document_id, plain.body, plain.mime_type) == ("MED-1", "plain", PLAIN_TEXT)
    assert (markdown.mime_type, markdown.metadata) == (MARKDOWN, {"lang": "de"})
    assert markdown.document_id == document_id_of("a/b") != document_id_of("a_b")
    assert empty.body == "Three"
    blank = written(
        tmp_path / "blank.jsonl", {"_id": "a", "title": "Title", "text": " \n"}, {"_id": 1}
    )
    assert [document.body for document in read_corpus(blank)] == ["Title", ""]
    assert list(read_corpus(path)) == [plain, markdown, empty]
    with pytest.raises(InvalidArgument, match="no such file; a corpus is"):
        list(read_corpus(tmp_path / "none"))


def test_every_format_may_name_the_kind_and_the_language_of_a_question(tmp_path: Path) -> None:
    lines = written(tmp_path / "q.jsonl", {"query": "?", "kind": "codes", "lang": "de"})
    table = written(tmp_path / "q.csv", "question,quote,kind,language", "?,x,,", "?,y,codes,de")
    folder = tmp_path / "beir"
    query = {"_id": "q1", "text": "?", "kind": "codes", "language": "de"}
    written(folder / "queries.jsonl", query)
    written(folder / "qrels" / "test.tsv", "q1\td1\t1")
    for path in (lines, table, folder):
        (question,) = read_questions(path)
        assert (question.kind, question.language) == ("codes", "de"), path
    wrong = written(tmp_path / "wrong.jsonl", {"query": "?", "kind": ["codes"]})
    with pytest.raises(InvalidArgument, match=r"wrong\.jsonl, line 1: kind is .*; it must be"):
        read_questions(wrong)


def test_a_repeated_id_names_both_lines_in_every_format(tmp_path: Path) -> None:
    table = written(tmp_path / "q.csv", "qid,question,quote", "a,one,x", "b,two,x", "a,three,x")
    with pytest.raises(InvalidArgument, match=r"line 4: qid is .a.; .* from the id in line 2"):
        read_questions(table)
    written(tmp_path / "queries.jsonl", *[{"_id": "q1", "text": "?"}] * 2)
    written(tmp_path / "qrels" / "test.tsv", "q1\td1\t1")
    with pytest.raises(InvalidArgument, match="line 2: qid is 'q1'"):
        read_questions(tmp_path)
