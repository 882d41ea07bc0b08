"""Data directories: what one disk can stop, and what is stopped."""
