"""The recogniser of the extra `ocr`: RapidOCR with the models that are in its wheel.

RapidOCR runs three models of PaddleOCR in ONNX Runtime: the first finds the boxes of lines, the
second says which lines are upside down, and the third reads each line. They read English and
Chinese, and most other languages with Latin letters. The models are loaded when this module's
`open_recogniser` is called, from files of the wheel. Nothing is downloaded. Everything runs in the
calling thread, because a confined process cannot start threads.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import rapidocr
from numpy.typing import NDArray
from rapidocr.main import RapidOCRError
from rapidocr.utils.process_img import map_boxes_to_original

from indexer_svc.parsers.recognition import FoundLine, Picture, Point, Recognise

_MODELS = Path(rapidocr.__file__).parent / "models"
# A line is turned by 180 degrees only if the score of the second model is above this value. It is
# RapidOCR's default.
_MIN_FLIP_SCORE = 0.9
_PARAMETERS = {
    # Without a path, RapidOCR would download a model that is missing in the wheel.
    "Det.model_path": str(_MODELS / "PP-OCRv6_det_small.onnx"),
    "Cls.model_path": str(_MODELS / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"),
    "Rec.model_path": str(_MODELS / "PP-OCRv6_rec_small.onnx"),
    # Lines are found on a smaller picture, in a third of the time. They are read on the picture
    # itself. All lines of printed pages are found on the smaller one too.
    "Det.limit_type": "max",
    "Det.limit_side_len": 1280,
    # Lines of one batch are padded to the longest of them. In one thread, larger batches are not
    # faster, but take more memory.
    "Rec.rec_batch_num": 1,
    "Cls.cls_thresh": _MIN_FLIP_SCORE,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    "Global.log_level": "critical",
    # The places of characters are a by-product of reading a line, and cost nothing.
    "Global.return_word_box": True,
}
# Lines with a lower score are noise, such as the texture of a photograph. The value is RapidOCR's
# default.
_MIN_SCORE = 0.5
# If a box is at least this many times as high as it is wide, RapidOCR turns the box by 90 degrees
# counterclockwise before it reads the line.
_SIDEWAYS = 1.5
_UPSIDE_DOWN = "180"


def open_recogniser() -> Recognise:
    """Loads the models and returns the recogniser. Only one thread at a time may call it."""
    cv2.setNumThreads(1)
    engine = rapidocr.RapidOCR(params=_PARAMETERS)

    def recognise(picture: Picture) -> Sequence[FoundLine]:
        record: dict[str, dict[str, float]] = {"preprocess": {"ratio_h": 1.0, "ratio_w": 1.0}}
        try:
            crops, boxes = engine.detect_and_crop(picture, record)
            lines = _read_lines(engine, crops)
        except RapidOCRError:  # The picture has no text.
            return ()
        if boxes.boxes is None:
            return ()
        height, width = picture.shape[:2]
        corners = map_boxes_to_original(boxes.boxes, record, height, width)
        return tuple(
            FoundLine(
                line.text,
                _corners(box),
                _turn(box, is_flipped=line.is_flipped),
                line.score,
                line.edges,
            )
            for line, box in zip(lines, corners, strict=True)
            if line.score >= _MIN_SCORE and line.text
        )

    # RapidOCR loads a model when it is first used. A confined process cannot read its file.
    blank = np.full((64, 256, 3), 255, np.uint8)
    recognise(blank)
    _read_lines(engine, [blank])
    return recognise


class _ReadLine(NamedTuple):
    """The text of a line and its score from 0 to 1. `is_flipped` lines were upside down.

    `edges` has the meaning of `FoundLine.edges`.
    """

    text: str
    score: float
    edges: tuple[float, ...]
    is_flipped: bool


def _read_lines(engine: rapidocr.RapidOCR, crops: list[Picture]) -> list[_ReadLine]:
    """Returns the text of each crop, which is the picture of one line.

    The second model takes some upright lines for lines that are upside down. So a line is read
    both ways, unless it lies as most lines do, and the text with the better score is taken. Raises
    RapidOCRError if no line has any text.
    """
    turned, flips = engine.cls_and_rotate(crops)
    results = flips.cls_res or []
    are_flipped = [label == _UPSIDE_DOWN and score > _MIN_FLIP_SCORE for label, score in results]
    read = zip(_texts(engine, turned), are_flipped, strict=True)
    lines = [_ReadLine(*line, is_flipped) for line, is_flipped in read]
    doubtful = [
        number
        for number, is_flipped in enumerate(are_flipped)
        if 2 * are_flipped.count(is_flipped) <= len(lines)
    ]
    if doubtful:
        again = [np.rot90(turned[number], 2).copy() for number in doubtful]
        for number, (text, score, edges) in zip(doubtful, _texts(engine, again), strict=True):
            if score > lines[number].score:
                lines[number] = _ReadLine(text, score, edges, not are_flipped[number])
    return lines


def _texts(
    engine: rapidocr.RapidOCR, crops: list[Picture]
) -> Iterator[tuple[str, float, tuple[float, ...]]]:
    """Yields the text of each crop, its score, and the edges of its characters."""
    read = engine.recognize_txt(crops)
    for text, score, places in zip(read.txts or (), read.scores, read.word_results, strict=False):
        stripped = text.strip()
        yield stripped, score, _edges(stripped, places)


def _edges(text: str, places: Any) -> tuple[float, ...]:
    """Returns the edges of the characters of a text, from 0 to 1 along its line.

    The third model reads a line in columns. `places` has the column at which it has read each
    visible character, which is near the middle of the character. So two visible characters meet in
    the middle between their columns, and so do two words: white space has no width.
    """
    columns = [column for word in places.word_cols for column in word]
    visible = [index for index, character in enumerate(text) if not character.isspace()]
    if len(columns) != len(visible) or not columns or not places.line_txt_len:
        return ()
    edges = [0.0] * (len(text) + 1)
    edges[-1] = 1.0
    for (before, left), (after, right) in pairwise(zip(visible, columns, strict=True)):
        middle = min((left + right + 1) / 2 / places.line_txt_len, 1.0)
        edges[before + 1 : after + 1] = [middle] * (after - before)
    return tuple(edges)


def _corners(box: NDArray[np.float32]) -> tuple[Point, Point, Point, Point]:
    first, second, third, fourth = ((x, y) for x, y in box.tolist())
    return first, second, third, fourth


def _turn(box: NDArray[np.float32], *, is_flipped: bool) -> int:
    """Returns by how many degrees the text of a box is turned counterclockwise."""
    width = max(np.linalg.norm(box[0] - box[1]), np.linalg.norm(box[2] - box[3]))
    height = max(np.linalg.norm(box[0] - box[3]), np.linalg.norm(box[1] - box[2]))
    if int(height) >= _SIDEWAYS * int(width):
        return 90 if is_flipped else 270
    return 180 if is_flipped else 0
