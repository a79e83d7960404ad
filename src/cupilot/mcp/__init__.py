"""A Model Context Protocol server: coding agents have their CUDA checked and profiled on the virtual GPU.

`server` speaks the protocol and needs the package ``mcp``; the work is done by `worker`, a process of its own that can
be interrupted, with `work` in it; `answers` are what agents get to read.
"""
