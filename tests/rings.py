"""Whether this kernel lets a test use io_uring."""

from __future__ import annotations

import pytest

from logservice.logdb.io.write_ring import WriteRing


def _refusal() -> str:
    try:
        WriteRing().close()
    except OSError as error:
        return str(error.strerror)
    return ""


needs_io_uring = pytest.mark.skipif(bool(_refusal()), reason=f"io_uring: {_refusal()}")
