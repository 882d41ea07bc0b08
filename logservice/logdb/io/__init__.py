"""What log storage asks of the operating system and of LevelDB: seams and implementations."""
