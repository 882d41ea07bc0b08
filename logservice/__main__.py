"""`python -m logservice`: the same as the `logservice` command."""

from __future__ import annotations

from logservice.cli.main import main

if __name__ == "__main__":
    main()
