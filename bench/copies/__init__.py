"""Bytes that leave or come in bulk: truncation, archive and restore, mirror, catch-up."""
