"""What a store shows of itself: status, readiness, metrics, the admin port and its page."""
