"""Names in requests: below the runs folder, or nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.ui.paths import below, is_plain


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "a" / "b").mkdir(parents=True)
    (tmp_path / "runs" / ".hidden").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "runs" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "runs" / "circle").symlink_to(tmp_path / "runs" / "circle")
    (tmp_path / "runs" / "inner").symlink_to(tmp_path / "runs" / "a")
    return tmp_path / "runs"


def test_what_is_below_is_found(root: Path) -> None:
    assert below(root, "a/b") == root / "a" / "b"
    assert below(root, "inner/b") == root / "a" / "b", "links within are followed"


def test_the_folder_itself_may_be_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert below(tmp_path / "link", "a") == root / "a"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/..", "a/../..", "../outside", "a//b", "/etc", "a/", "a\\b", ".hidden", "a\0", "a\n", "a" * 2000],
)
def test_odd_names_are_no_names(root: Path, name: str) -> None:
    assert not is_plain(name)
    assert below(root, name) is None


def test_an_absolute_path_is_no_name_even_when_below(root: Path) -> None:
    assert below(root, str(root / "a")) is None


@pytest.mark.parametrize("name", ["out", "circle", "missing", "b" * 300])
def test_links_out_and_what_is_not_there(root: Path, name: str) -> None:
    assert is_plain(name)
    assert below(root, name) is None
