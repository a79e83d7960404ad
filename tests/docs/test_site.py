"""The documentation as a site: every page is in its navigation, and it builds without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def listed() -> list[str]:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(listed()) == sorted(path.name for path in DOCS.glob("*.md"))


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *DOCS.glob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http:", "https:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "site" / "concepts.html").read_text()
    assert "online-softmax" in text
    # nothing is fetched when a page is opened
    for path in (tmp_path / "site").glob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', path.read_text())
        assert loaded == [], path.name
    assert not (tmp_path / "site" / "make_cli.py").exists()
