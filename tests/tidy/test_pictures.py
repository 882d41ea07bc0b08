"""The committed pictures are what `make pictures` makes, and the page's is small."""

from __future__ import annotations

import re

from tools.make_pictures import PICTURES, ROOT, pictures
from tools.take_screenshot import SIZE_BYTES_MAX


def test_the_drawings_are_what_the_script_makes() -> None:
    made = pictures()
    assert {name: (PICTURES / name).read_text("utf-8") for name in made} == made


def test_the_plots_that_the_documents_show_are_there_for_both_pages() -> None:
    named = {
        name
        for page in (ROOT / "README.md", ROOT / "docs" / "performance.md")
        for name in re.findall(r"pictures/bench/([a-z0-9-]+\.svg)", page.read_text("utf-8"))
    }
    assert {"callers-dark.svg", "callers-light.svg"} <= named
    assert named == {path.name for path in (PICTURES / "bench").iterdir()}


def test_the_screenshot_is_small() -> None:
    assert (PICTURES / "ui.png").stat().st_size <= SIZE_BYTES_MAX
