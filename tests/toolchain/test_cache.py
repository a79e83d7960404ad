"""Entries of the cache: damage is found and mended; a cache that cannot be written is the user's to mend."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.errors import CacheError, UserError
from cupilot.records import Failure, Kernel
from cupilot.toolchain import cache
from cupilot.toolchain.cache import MANIFEST, is_intact, is_kept, publish, scratch_beside
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.host import build_host_library
from cupilot.toolchain.nvcc import CUBIN, LIBRARY, PTX, RESOURCES, build_kernel
from cupilot.toolchain.sass import RESULT, kernel_sass

SOURCE = """#include <torch/extension.h>
__global__ void k(float* x) {{ x[threadIdx.x] = {value}f; }}
torch::Tensor forward(torch::Tensor x) {{ k<<<1, 32>>>(x.data_ptr<float>()); return x; }}
"""


def entry(final: Path, **files: str) -> Path:
    with scratch_beside(final) as scratch:
        for name, text in files.items():
            (scratch / name).write_text(text)
        publish(scratch, final)
    return final


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": flip, "truncated": truncate, "removed": Path.unlink, "emptied": lambda path: path.write_bytes(b""),
}  # fmt: skip


def test_an_entry_is_kept_as_it_was_made(tmp_path: Path) -> None:
    final = entry(tmp_path / "one", a="1", b="2")
    assert is_kept(final)
    assert sorted(path.name for path in final.iterdir()) == ["a", "b", MANIFEST]
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("file", ["a", MANIFEST])
def test_a_damaged_entry_is_removed(damage: Callable[[Path], None], file: str, tmp_path: Path) -> None:
    final = entry(tmp_path / "one", a="some text", b="2")
    damage(final / file)
    assert not is_kept(final)
    assert list(tmp_path.iterdir()) == []


def test_a_strange_file_or_another_name_is_damage(tmp_path: Path) -> None:
    final = entry(tmp_path / "one", a="1")
    (final / "more").write_text("")
    assert not is_intact(final)
    shutil.copytree(entry(tmp_path / "two", a="1"), tmp_path / "three")
    assert not is_intact(tmp_path / "three")
    (tmp_path / "four").write_text("a file")
    assert not is_kept(tmp_path / "four")
    (tmp_path / "five").symlink_to(tmp_path / "two")
    assert not is_kept(tmp_path / "five")
    assert is_kept(tmp_path / "two")


def test_an_entry_that_another_process_made_stays(tmp_path: Path) -> None:
    final = tmp_path / "one"
    with scratch_beside(final) as scratch:
        (scratch / "a").write_text("mine")
        entry(final, a="theirs")
        publish(scratch, final)
    assert (final / "a").read_text() == "theirs"
    with scratch_beside(final) as scratch:
        (scratch / "a").write_text("mine")
        flip(final / "a")
        publish(scratch, final)
    assert (final / "a").read_text() == "mine"


@pytest.fixture(scope="module")
def kernels(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built, Built]:
    folder = tmp_path_factory.mktemp("kernels")
    one, two = (build_kernel(Kernel(SOURCE.format(value=v)), "sm_80", folder, cuda) for v in ("1.0", "2.0"))
    assert isinstance(one, Built)
    assert isinstance(two, Built)
    return folder, one, two


@pytest.mark.parametrize("file", [LIBRARY, PTX, CUBIN, RESOURCES, MANIFEST])
def test_a_damaged_build_is_built_again(file: str, kernels: tuple[Path, Built, Built], cuda: Cuda) -> None:
    folder, one, _ = kernels
    flip(one.library.with_name(file))
    again = build_kernel(one.kernel, "sm_80", folder, cuda)
    assert isinstance(again, Built)
    assert again.ptx == one.ptx
    assert is_intact(one.library.parent)


def test_the_binary_of_another_kernel_is_not_taken(kernels: tuple[Path, Built, Built], cuda: Cuda) -> None:
    folder, one, two = kernels
    shutil.rmtree(one.library.parent)
    shutil.copytree(two.library.parent, one.library.parent)
    again = build_kernel(one.kernel, "sm_80", folder, cuda)
    assert isinstance(again, Built)
    assert again.ptx == one.ptx != two.ptx


def test_a_damaged_listing_is_made_again(kernels: tuple[Path, Built, Built], cuda: Cuda, tmp_path: Path) -> None:
    _, _, two = kernels
    cubin = two.library.with_name(CUBIN)
    first = kernel_sass(cubin, two.ptx, cuda, tmp_path)
    (kept,) = tmp_path.iterdir()
    for damage in (truncate, flip, lambda path: path.write_text(json.dumps([]))):
        damage(kept / RESULT)
        assert kernel_sass(cubin, two.ptx, cuda, tmp_path) == first
        assert is_intact(kept)


def test_a_damaged_library_of_ours_is_built_again(tmp_path: Path) -> None:
    source = tmp_path / "one.cpp"
    source.write_text("int one() { return 1; }\n")
    library = build_host_library("one", [source], tmp_path / "out")
    whole = library.read_bytes()
    for path in (tmp_path / "out").rglob("*.[so]*"):
        truncate(path)
    assert build_host_library("one", [source], tmp_path / "out").read_bytes() == whole


def test_two_processes_make_one_entry(cuda: Cuda, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cupilot.records import Kernel\n"
        "from cupilot.toolchain.cuda import find_cuda; from cupilot.toolchain.nvcc import build_kernel\n"
        f"built = build_kernel(Kernel({SOURCE.format(value='3.0')!r}), 'sm_80', Path(sys.argv[1]), find_cuda())\n"
        "print(built.library)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = {process.communicate(timeout=120)[0] for process in both}
    assert len(told) == 1
    (only,) = tmp_path.iterdir()
    assert is_intact(only)


# --- a cache that cannot be used ------------------------------------------------------------------


def test_a_cache_that_is_a_file(cuda: Cuda, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(CacheError, match=r"cache/kernels cannot be used \(Not a directory\): set CUPILOT_CACHE"):
        build_kernel(Kernel(SOURCE.format(value="4.0")), "sm_80", tmp_path / "cache" / "kernels", cuda)
    with pytest.raises(UserError, match=r"cache cannot be used \(File exists\): set CUPILOT_CACHE"):
        build_kernel(Kernel(SOURCE.format(value="4.0")), "sm_80", tmp_path / "cache", cuda)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_folder_that_cannot_be_written(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cache, "mkdtemp", refuse)
    with pytest.raises(CacheError, match=os.strerror(number)):
        entry(tmp_path / "one", a="1")


def test_a_full_disk(cuda: Cuda, tmp_path: Path) -> None:
    """A file system of half a megabyte, where this process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system")
    try:
        with pytest.raises(CacheError, match=r"No space left on device\): set CUPILOT_CACHE"):
            build_kernel(Kernel(SOURCE.format(value="5.0")), "sm_80", folder / "kernels", cuda)
        assert list((folder / "kernels").iterdir()) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_source_that_speaks_of_a_full_disk_is_not_believed(cuda: Cuda, tmp_path: Path) -> None:
    text = "#error No space left on device\n" + SOURCE.format(value="6.0")
    failed = build_kernel(Kernel(text), "sm_80", tmp_path, cuda)
    assert isinstance(failed, Failure)
    assert failed.kind == "compile-error"


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), scratch_beside(tmp_path / "one"):
        (tmp_path / "absent").read_text()
