"""A short run of the story as part of the ordinary tests; the long ones are ``make stream``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.streaming.story import FAULTS, Story


@pytest.mark.processes
@pytest.mark.spark
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs a Java runtime")
    story = Story(tmp_path, rounds=1, seed=1, say=lambda text: None)
    try:
        story.run()
    finally:
        story.end()
    assert story.seen.kills == dict.fromkeys(FAULTS, 1)
    assert story.seen.again >= story.seen.cut
    assert min(story.seen.records.values()) > 0
