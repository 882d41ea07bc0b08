"""What a leader knows of every member: how far it is, whether it votes, when a majority agrees."""
