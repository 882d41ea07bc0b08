"""What became of a run: kept in a file (`result`), judged (`verdict`), shown (`table`, `plots`)."""
