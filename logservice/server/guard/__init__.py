"""What every connection, call and answer passes, whatever it asks."""
