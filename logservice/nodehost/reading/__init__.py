"""Reading a range of the log for a caller."""
