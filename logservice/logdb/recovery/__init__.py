"""From files to state: at a start, after a crash, after damage, and offline."""
