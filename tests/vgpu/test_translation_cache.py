"""Compiled kernels on disk: found again, made again when unreadable, never mistaken for another."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from ptxkit import INDEX, Bench, module, pointer

from cupilot.vgpu import translate
from cupilot.vgpu.emit import Emitter
from cupilot.vgpu.translate import Translator

TEXT = module(f"{INDEX}{pointer(0)} st.global.u32 [%rd0], 7; ret;", "kept", [".u64 {}"])


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    class Watched(Emitter):
        def kernel(self) -> object:  # type: ignore[override]
            names.append(self.function.name)
            return super().kernel()

    monkeypatch.setattr(translate, "Emitter", Watched)
    return names


def compiled(bench: Bench, folder: Path, text: str = TEXT) -> str:
    translator = Translator(bench.machine._library, folder)
    code, address = translator.compile(translator.parse(text), "kept", text)
    assert address
    return code.ir


def test_the_second_process_finds_what_the_first_made(bench: Bench, tmp_path: Path, emitted: list[str]) -> None:
    first = compiled(bench, tmp_path / "new")
    assert compiled(bench, tmp_path / "new") == first
    assert emitted == ["kept"]


def test_other_text_is_another_kernel(bench: Bench, tmp_path: Path, emitted: list[str]) -> None:
    compiled(bench, tmp_path)
    compiled(bench, tmp_path, TEXT.replace("], 7;", "], 8;"))
    assert emitted == ["kept", "kept"]


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x80\x04N."])
def test_an_unreadable_file_is_made_again(bench: Bench, tmp_path: Path, emitted: list[str], content: bytes) -> None:
    compiled(bench, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    compiled(bench, tmp_path)
    compiled(bench, tmp_path)
    assert emitted == ["kept", "kept"]


def test_a_folder_that_cannot_be_written_costs_time_only(bench: Bench, tmp_path: Path, emitted: list[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        compiled(bench, tmp_path / "file" / "folder")
    assert emitted == ["kept", "kept"]


def test_an_edited_family_of_opcodes_is_another_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = copytree(Path(translate.__file__).parent, tmp_path / "vgpu")
    monkeypatch.setattr(translate, "files", lambda name: package)
    before = translate.engine_digest.__wrapped__()
    with (package / "lower" / "families" / "logic.py").open("a") as family:
        family.write("# edited")
    assert translate.engine_digest.__wrapped__() != before
