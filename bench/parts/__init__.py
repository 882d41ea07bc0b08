"""One part alone: the consensus core, the transport, tokens, meters, wide blocks, idle shards."""
