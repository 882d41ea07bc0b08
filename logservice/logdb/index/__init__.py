"""What is known in memory of each replica's log: where entries lie, what is live where."""
