"""The catalogue of every format with a version of its own, on disk and between stores."""

from __future__ import annotations

from tests.formats import log_formats, peer_formats

FORMATS = (*log_formats.FORMATS, *peer_formats.FORMATS)
