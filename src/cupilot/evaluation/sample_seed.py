"""Which blocks run at the task's shape, in place of all of them: drawn so that no author can know.

The seed of a call's sample is a hash of the kernel's text and the kind of inputs, keyed with the evaluation's seed.  So
another text has another sample, an evaluation can be repeated from its seed, and who does not know the seed
(it is random unless it is asked for) cannot write a kernel that behaves well in the blocks that run.  Each kind of
inputs has a sample of its own: together they see more blocks.
"""

from __future__ import annotations

from hashlib import blake2b

from cupilot.records import Kernel


def sample_seed(seed: int, kernel: Kernel, kind: str) -> int:
    """64 bits."""
    key = str(seed).encode()[-blake2b.MAX_KEY_SIZE :]
    text = f"{kernel.digest}\0{kernel.source}\0{kind}"
    return int.from_bytes(blake2b(text.encode(), key=key, digest_size=8).digest(), "little")
