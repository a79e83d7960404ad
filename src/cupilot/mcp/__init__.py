"""A Model Context Protocol server: coding agents have their CUDA checked and profiled on the virtual GPU.

`server` speaks the protocol and needs the package ``mcp``.  The tools run in a `worker`, a separate process that can be
interrupted; `worker_client` is the server's side of it, `request` and `answers` are the records that they exchange, and
`tools` does the work.
"""
