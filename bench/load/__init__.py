"""Load: callers that wait for their acks (`closed_loop`), requests at fixed times (`open_loop`)."""
