"""One module per target: ``HELP``, and ``files(subject)``, which are paths and texts."""
