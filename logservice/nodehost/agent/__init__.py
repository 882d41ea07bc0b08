"""HAKeeper's arm in a store: heartbeats, its commands, its replica, what is remembered of it."""
