"""The async shell: many replicas on one event loop, one commit group per pass, peers, requests."""
