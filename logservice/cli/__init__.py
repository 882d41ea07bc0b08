"""The two programs: `logctl` talks to a cluster (`logctl.py`), `logservice` runs one (`main.py`).

Their commands are in `ctl/` and in `certificates/`, `processes/` and `offline/`; what all of them
share (output, exit codes) is in `shell/`. A command is imported when it runs, not before, so that
``--help`` stays quick. Nothing imports `cli/`.
"""
