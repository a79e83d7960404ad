"""One module per subcommand, found by scanning this folder.

A command module has ``HELP`` (one line), ``configure(parser)`` and ``run(options, terminal)``, which
returns the exit status.  The module's name is the command's name.  Heavy imports (torch, llvmlite)
belong into ``run``, so that ``cupilot --help`` stays quick.
"""
