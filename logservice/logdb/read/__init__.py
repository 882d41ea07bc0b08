"""Reading entries, from memory or from segments."""
