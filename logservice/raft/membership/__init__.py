"""Who the members are, and how one set of them becomes another."""
