"""Where blocking disk work runs, off the event loop."""
