"""Confined processes for untrusted code: limits and answers (`process`), rights (`confine`), `bubblewrap`."""
