"""The command line: one module per command, each with ``configure(parser)`` and ``execute(args)``."""
