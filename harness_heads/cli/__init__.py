"""Command line: the ``lmms_eval`` launcher and the ``harness-heads`` subcommands, one thin file each."""
