"""Somebody quiet beside somebody loud: logs, identities, a replica that catches up."""
