"""The log as the core sees it: what storage has, and the tail that is not durable yet."""
