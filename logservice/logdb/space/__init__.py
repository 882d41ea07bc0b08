"""What a disk has room for, and what is kept ready on it."""
