"""The async shell of a store: many replicas on one event loop, one commit group per pass.

Start at `node_host.py`, which the rest of a store calls. Below it are `replica/` (replicas, their
requests, and which of them run), `routing/` (the way to a leader), `disks/` (data directories and
the pass), `hearing/` (which peers are believed), `peers/` (questions between stores), `clocks/`
(what time it is), `transport/`, `truncation/`, `integrity/` (scrub, comparison, repair) and
`agent/` (HAKeeper's part). `listeners.py` tells whoever embeds a host what happens on it.
`assembly/` puts a store together. `server`, `sim`, `bench` and tests import it.
"""
