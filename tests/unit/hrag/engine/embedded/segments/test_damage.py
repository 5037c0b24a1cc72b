"""Tests of the `.damaged` markers, with which readers report damaged segments."""

from pathlib import Path

from hrag.engine.embedded.segments.damage import (
    forget_damage,
    is_reported,
    report_damage,
    reported_damage,
)


def test_a_report_of_damage_stays_until_it_is_deleted(tmp_path: Path) -> None:
    report_damage(tmp_path, 7)
    report_damage(tmp_path, 8)
    forget_damage(tmp_path, 7)
    forget_damage(tmp_path, 9)
    assert reported_damage(tmp_path) == {8}
    assert [is_reported(tmp_path, segment_id) for segment_id in (7, 8, 9)] == [False, True, False]


def test_a_marker_without_a_segment_id_is_no_report_of_damage(tmp_path: Path) -> None:
    (tmp_path / "notes.damaged").touch()
    assert reported_damage(tmp_path) == set()
