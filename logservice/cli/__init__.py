"""The command line: `logservice` runs and inspects stores, `logctl` talks to a cluster."""
