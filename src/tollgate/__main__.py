"""`python -m tollgate` is the `tollgate` command."""

from tollgate.cli import main

main(prog_name="tollgate")
