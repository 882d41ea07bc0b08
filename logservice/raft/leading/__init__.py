"""What a leader does."""
