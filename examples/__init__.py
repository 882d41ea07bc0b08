"""Programs that show the log service at work."""
