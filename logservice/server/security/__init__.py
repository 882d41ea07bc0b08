"""Who may call what, how often, and what is written down of it."""
