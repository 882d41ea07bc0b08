"""What the machine can do without us: its description, and the raw disk."""
