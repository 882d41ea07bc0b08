"""What a session depends on, set by the session itself.

A role, a database and a server have settings for ordinary sessions: how values are written, how
long a statement may take, which rows are seen. They hold for every session that does not say
otherwise. So each connection says all of it, in its startup message, which wins over all of these;
`pg_dump` does the same. Settings that not every version of PostgreSQL has cannot stand there: an
unknown one ends the connection. They are set by SQL, where a connection takes any.
"""

from __future__ import annotations

from typing import Final

PHYSICAL: Final = "true"
"""The value of ``replication`` for a connection that takes no SQL."""

SETTINGS: Final = {
    # Which rows are seen, as whom, and how a filter is read: an error rather than fewer rows.
    "row_security": "off",
    "role": "none",
    "search_path": "pg_catalog",
    "transform_null_equals": "off",
    "gin_fuzzy_search_limit": "0",
    "quote_all_identifiers": "off",
    # How a value is written: the same text from every connection.
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    # How long it may take: a copy takes as long as it does, and a stream has no end.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "wal_sender_timeout": "60s",
    # What a transaction is that does not say.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
}
"""By name, for the startup message. `wal_sender_timeout` is PostgreSQL's default: the server ends a
connection on which it has heard nothing for so long."""

NEWER: Final = {"transaction_timeout": "0"}
"""Those of newer versions, for `set_newer`."""


def set_newer() -> str:
    """SQL that sets NEWER, as far as the server has them."""
    return ";".join(
        f"SELECT set_config(name, '{value}', false) FROM pg_settings WHERE name = '{name}'"
        for name, value in NEWER.items()
    )
