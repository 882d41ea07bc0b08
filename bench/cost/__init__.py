"""What an acknowledged append costs, in counts that a busy machine does not change."""
