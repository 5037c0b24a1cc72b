"""In the mode SUMMARY_FIRST, searches return passages of the best sections."""

import pytest

from hrag.errors import NoSummaries
from hrag.types import (
    MARKDOWN,
    Document,
    Page,
    SearchMode,
    SettingsRequest,
    SummaryScope,
    SummaryUnit,
)
from tests.support.engines.summary_model import wait_until_summarised

_ABOUT = {
    "Brewing coffee": (
        "Grind the beans just before brewing, because ground coffee goes stale quickly. "
        "Pour water of about ninety degrees over the coffee in slow circles. "
        "A paper filter keeps the oils back, so that the cup is clear and light. "
        "Medium roasted coffee beans taste best after three weeks. "
    ),
    "Repairing a bicycle": (
        "Turn the bicycle upside down before you take the wheel out. "
        "A flat tyre is mended with a patch and a little glue. "
        "Oil the chain after every ride in the rain, or it will rust. "
        "Worn brake pads have to be replaced in pairs on both wheels. "
    ),
    "Growing tomatoes": (
        "Tomato seedlings are planted out after the last frost of spring. "
        "Water tomato plants at the root and never over their leaves. "
        "Pinch out the side shoots so that the fruit grows larger. "
        "Ripe tomatoes come off the plant with a light twist. "
    ),
}
_HEADINGS = list(_ABOUT)
TEXT = "\n\n".join(f"# {heading}\n\n{text}" for heading, text in _ABOUT.items())
SECTIONS = SettingsRequest(
    level_sizes=(32, 64, 128), overlap_ratio=0.0, summaries=SummaryUnit.SECTION
)


@pytest.fixture
def client(builtin_services):
    return builtin_services.client


@pytest.fixture
def guide(client, tenant):
    """A function that searches a document of three summarised sections.

    The default mode of its searches is SUMMARY_FIRST.
    """
    client.create_collection(tenant, "guide", SECTIONS)
    client.ingest(tenant, Document(TEXT, "guide", mime_type=MARKDOWN), collection="guide")
    status = wait_until_summarised(client, tenant, "guide")
    assert (status.summary_count, status.summary_tokens) == (1 + 3, 0)

    def search(text, **options):
        options = {"mode": SearchMode.SUMMARY_FIRST, "return_level": 0, "limit": 50, **options}
        return client.search(tenant, text, collection="guide", **options)

    return search


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("how do I make a good cup of coffee?", "Brewing coffee"),
        ("my bike has a puncture", "Repairing a bicycle"),
        ("when do I plant vegetables?", "Growing tomatoes"),
    ],
)
def test_all_passages_belong_to_the_section_whose_summary_answers(guide, question, heading):
    result = guide(question, top_sections=1)
    (section,) = result.sections
    assert section.section_path == (heading,)
    assert section.document_id == "guide"
    assert section.summary in " ".join(TEXT.split())
    start, end = section.span.char_start, section.span.char_end
    assert {passage.chunk.section_path for passage in result.passages} == {(heading,)}
    for passage in result.passages:
        assert start <= passage.chunk.span.char_start < passage.chunk.span.char_end <= end
    assert (
        "".join(
            passage.chunk.content
            for passage in sorted(
                result.passages, key=lambda passage: passage.chunk.span.char_start
            )
        )
        == TEXT[start:end]
    )
    assert result.exhausted
    assert result.eligible_leaves == len(result.passages) > 1


def test_the_limit_is_filled_from_the_sections(guide):
    whole = guide("coffee", top_sections=1).passages
    assert len(whole) > 1
    for limit in range(1, len(whole) + 1):
        result = guide("coffee", top_sections=1, limit=limit)
        assert result.passages == whole[:limit]
        assert result.exhausted == (limit == len(whole))


def test_a_search_of_all_sections_adds_a_share_of_the_document_to_a_plain_search(guide):
    everything = guide("how do I mend it?", top_sections=1000)
    assert sorted(section.section_path[0] for section in everything.sections) == sorted(_HEADINGS)
    plain = {"mode": SearchMode.STANDARD, "return_level": None, "neighbour_bonus": 0.0}
    _check_share_of_document(everything, guide("how do I mend it?", **plain))
    big = {"return_level": 2}
    _check_share_of_document(
        guide("coffee", top_sections=1000, **big),
        guide("coffee", mode=SearchMode.SMALL_TO_BIG, **big),
    )


def _check_share_of_document(result, plain):
    """Checks two searches of one document: one by summaries, in all sections, and a plain one.

    The share is a quarter of the document's score: the mean of the three best leaves, plus a
    quarter of the lexical score of its summary, which is 0 to 1.
    """
    leaves = _leaves(plain)
    shares = [score - leaves[leaf] for leaf, score in _leaves(result).items()]
    assert _leaves(result).keys() == leaves.keys()
    assert shares == pytest.approx([shares[0]] * len(shares), abs=1e-5)
    mean = sum(sorted(leaves.values(), reverse=True)[:3]) / 3
    assert 0.25 * mean - 1e-5 <= shares[0] <= 0.25 * (mean + 0.25) + 1e-5
    chunks = [[passage.chunk for passage in found.passages] for found in (result, plain)]
    assert chunks[0] == chunks[1]


def _leaves(result):
    """Returns the scores of the matched leaves by their ids."""
    children = [child for passage in result.passages for child in passage.matched_children]
    return {child.chunk_id: child.score for child in children}


def test_summaries_of_documents_may_be_searched_first(client, tenant):
    client.create_collection(tenant, "c", SECTIONS)
    for heading, text in _ABOUT.items():
        document = Document(
            f"# {heading}\n\n{text}\n\n# More\n\n{text}",
            heading.split()[-1],
            heading,
            mime_type=MARKDOWN,
        )
        client.ingest(tenant, document, collection="c")
    wait_until_summarised(client, tenant, "c")
    options = {"collection": "c", "mode": SearchMode.SUMMARY_FIRST, "top_sections": 2}
    result = client.search(
        tenant, "tomatoes in the garden", summary_scope=SummaryScope.DOCUMENTS, limit=50, **options
    )
    assert len(result.sections) == 2
    assert result.sections[0].document_id == "tomatoes"
    assert result.sections[0].title == "Growing tomatoes"
    chosen = {section.document_id for section in result.sections}
    assert {passage.chunk.document_id for passage in result.passages} == chosen


def test_pages_are_summarised_unless_they_are_too_short(client, tenant):
    settings = SettingsRequest(
        level_sizes=(32, 64, 128), overlap_ratio=0.0, summaries=SummaryUnit.PAGE
    )
    client.create_collection(tenant, "c", settings)
    texts = list(_ABOUT.values())
    pages = (Page(texts[0]), Page("Intentionally left blank, as they say."), Page(texts[1]))
    client.ingest(tenant, Document(pages, "book"), collection="c")
    status = wait_until_summarised(client, tenant, "c")
    assert status.summary_count == 1 + 2
    result = client.search(
        tenant, "repair my bike", collection="c", mode=SearchMode.SUMMARY_FIRST, top_sections=1
    )
    (section,) = result.sections
    assert section.last_page == 3
    assert "bicycle" in section.summary
    assert {passage.chunk.last_page for passage in result.passages} == {3}


def test_chinese_sections_are_summarised_and_found(client, tenant):
    client.create_collection(tenant, "c", SECTIONS)
    text = (
        "# 咖啡\n\n研磨咖啡豆以后应该马上冲泡。水温最好在九十度左右。滤纸可以过滤掉多余的油脂。"
        "咖啡豆要放在阴凉干燥的地方。每次只研磨需要的分量。\n\n"
        "# 自行车\n\n先把自行车翻过来再拆车轮。轮胎漏气可以用胶水和补丁修理。"
        "雨天骑车以后要给链条上油。刹车片磨损以后应该成对更换。\n"
    )
    client.ingest(tenant, Document(text, "zh", mime_type=MARKDOWN), collection="c")
    wait_until_summarised(client, tenant, "c")
    result = client.search(
        tenant, "怎么修理轮胎？", collection="c", mode=SearchMode.SUMMARY_FIRST, top_sections=1
    )
    assert result.sections[0].section_path == ("自行车",)
    assert {passage.chunk.section_path for passage in result.passages} <= {("咖啡",), ("自行车",)}


def test_summaries_are_replaced_and_deleted_with_their_document(client, tenant):
    def chosen():
        wait_until_summarised(client, tenant, "c")
        result = client.search(
            tenant, "coffee", collection="c", mode=SearchMode.SUMMARY_FIRST, top_sections=100
        )
        return {(section.document_id, section.summary) for section in result.sections}

    client.create_collection(tenant, "c", SECTIONS)
    first, second = list(_ABOUT.values())[:2]
    client.ingest(tenant, Document(first, "d"), collection="c")
    ((_, old),) = chosen()
    client.ingest(tenant, Document(second, "d"), collection="c")
    ((_, new),) = chosen()
    assert new != old
    client.delete_document(tenant, "d", collection="c")
    assert chosen() == set()


def test_a_search_by_summaries_is_refused_if_the_collection_has_none(client, tenant):
    client.ingest(tenant, Document(TEXT, "d"))
    with pytest.raises(NoSummaries, match="no summaries"):
        client.search(tenant, "coffee", mode=SearchMode.SUMMARY_FIRST)
    assert client.get_collection(tenant, "default").settings.summaries is SummaryUnit.NONE


def test_the_setting_of_summaries_is_stored_with_the_collection(client, tenant):
    for unit in SummaryUnit:
        settings = SettingsRequest(summaries=unit)
        client.create_collection(tenant, unit.value, settings)
        assert client.get_collection(tenant, unit.value).settings.summaries is unit
