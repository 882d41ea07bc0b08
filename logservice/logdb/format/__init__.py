"""What is on disk, byte by byte: records, commit groups, segments."""
