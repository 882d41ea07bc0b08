"""What the commands about archives need, and what one is told who does not have it."""

from __future__ import annotations

from logservice_wire.errors import InvalidArgument


def need_pyarrow() -> None:
    """Raises InvalidArgument without the extra."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise InvalidArgument(
            "this needs pyarrow: pip install 'pyarrow>=18'", field="archive"
        ) from error
