"""The two programs: `logctl` talks to a cluster (`logctl.py`), `logservice` runs one (`main.py`).

The commands of `logctl` are in `ctl/`, and those of `logservice` in `certificates/`, `processes/`
and `offline/`. What all of them share (output, exit codes) is in `shell/`. A command is imported
only when it runs, so that ``--help`` stays quick. Nothing imports `cli/`. Start reading with
`main.py` or `logctl.py`, which list the commands.
"""
