"""page_commands: what a page of the documentation tells its reader to type.

Blocks marked ``bash`` are run by tests, in their order. Blocks marked ``console`` are for a machine
of one's own, and are only read.
"""

from __future__ import annotations

import re
from pathlib import Path


def page_commands(page: Path) -> list[str]:
    """The page's ``bash`` blocks, without the indentation of a list."""
    found = re.findall(r"^( *)```bash\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]
