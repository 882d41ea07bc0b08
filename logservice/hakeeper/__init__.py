"""HAKeeper: what the cluster is and should be, as the replicated state machine of shard 0. Pure."""
