"""llama.cpp's server as a process of its own: prints its address, and ends when its input does.

Arguments: the weights, and the tokens of its window if not 2048.  One thread, one slot.
"""

from __future__ import annotations

import sys

import xllamacpp

WINDOW_TOKENS = 2048


def main() -> None:
    settings = xllamacpp.CommonParams()
    settings.model.path = sys.argv[1]
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = int(sys.argv[2]) if len(sys.argv) > 2 else WINDOW_TOKENS
    settings.n_parallel = 1
    settings.n_threads_http = 2
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.warmup = False
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
