"""Log storage without a cluster, beside the raw disk: writing, reading, restarting, encoding."""
