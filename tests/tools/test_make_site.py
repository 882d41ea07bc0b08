"""The site's own check of links, on small sites; which pages the real one has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.source_tree import ROOT
from tools import site_pages
from tools.make_site import broken_links

HOME = """<link href="style.css"><h1 id="top">x</h1>
<a href="deep/page.html#there">y</a><a href="deep/">z</a><a href="#top">t</a>
<picture><source srcset="one%20picture.svg"><img src="one%20picture.svg"></picture>
<a href="https://elsewhere.example/x#y">e</a><a href="mailto:a@b.example">m</a>"""
PAGE = """<a name="there"></a><a href="../index.html#top">home</a>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "index.html").write_text(HOME)
    (tmp_path / "deep" / "page.html").write_text(PAGE)
    (tmp_path / "deep" / "index.html").write_text("")
    (tmp_path / "style.css").write_text("")
    (tmp_path / "one picture.svg").write_text("")
    return tmp_path


def test_a_whole_site_has_no_broken_link(site: Path) -> None:
    assert broken_links(site) == []


@pytest.mark.parametrize(
    ("gone", "found"),
    [
        ("style.css", ["index.html: style.css"]),
        ("one picture.svg", ["index.html: one%20picture.svg"]),
        ("deep/index.html", ["index.html: deep/"]),
    ],
)
def test_what_is_gone_is_named(site: Path, gone: str, found: list[str]) -> None:
    (site / gone).unlink()
    assert broken_links(site) == found


def test_an_anchor_must_be_in_its_page(site: Path) -> None:
    (site / "deep" / "page.html").write_text('<a id="elsewhere" href="#nothing">x</a>')
    assert broken_links(site) == ["deep/page.html: #nothing", "index.html: deep/page.html#there"]


def test_every_page_of_the_tree_stands_in_the_navigation_once() -> None:
    nav = [page for entry in site_pages.navigation() for pages in entry.values() for page in pages]
    paths = [path for page in nav for path in page.values()]
    assert sorted(paths) == site_pages.pages()
    assert paths[0] == "README.md"
    assert all(title and "`" not in title for page in nav for title in page)


def test_a_page_that_no_section_takes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_pages, "pages", lambda: ["README.md", "attic/old.md"])
    with pytest.raises(ValueError, match=r"no section .* takes attic/old\.md"):
        site_pages.navigation()


def test_pictures_and_sources_that_a_page_names_are_in_the_site() -> None:
    named = set(site_pages.named_files())
    assert {"docs/pictures/log.svg", "examples/sqlite_wal/story.py"} <= named
    assert all((ROOT / name).is_file() for name in named)
