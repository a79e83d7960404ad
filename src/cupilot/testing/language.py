"""The contract of a language."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.languages import detect_language, find_language
from cupilot.languages.contract import FunctionCall, Language, ModuleCall
from cupilot.records import Failure, Kernel, TensorSpec


class LanguageContract:
    """Offer the fixtures ``language``, ``good`` and ``broken``, and a ``device`` that runs it.

    ``good`` is a source that computes 2x + 1 of any vector of floats; ``broken`` looks right and does not build.
    """

    timeout_s = 60.0

    @pytest.fixture
    def kernel(self, language: Language, good: str) -> Kernel:
        return Kernel(good, language=language.name)

    @staticmethod
    def call(language: Language, kernel: Kernel, elements: int) -> Call:
        values = np.linspace(-3.0, 3.0, elements, dtype=np.float32)
        is_module = isinstance(language.convention(kernel), ModuleCall)
        arguments = ("()", (values,), (), (), "") if is_module else (values,)
        return Call(f"{elements} elements", arguments, (TensorSpec((elements,)),))

    def test_is_found_by_its_name(self, language: Language) -> None:
        assert find_language(language.name) is language
        assert language.suffix.startswith(".")
        assert all(language.fences)
        assert language.fences

    def test_says_how_to_write_it(self, language: Language) -> None:
        for name in ("contract.j2", "rules.j2"):
            assert (language.prompts / name).read_text(encoding="utf-8").strip(), name

    def test_knows_its_own_sources(self, language: Language, good: str) -> None:
        assert 0 < language.detect(good) <= 1
        assert language.detect("") == 0
        assert detect_language(good) is language
        assert detect_language(good, language.suffix) is language

    def test_finds_the_kernels_of_a_source(self, language: Language, good: str) -> None:
        assert all(language.kernels_in(good))
        assert len(language.kernels_in(good)) == 1
        assert language.kernels_in("") == ()

    def test_finds_mistakes_in_the_text(self, language: Language, kernel: Kernel) -> None:
        assert language.fault(kernel) is None
        assert isinstance(language.fault(replace(kernel, source="nothing\n")), Failure)

    def test_says_how_it_is_called(self, language: Language, kernel: Kernel) -> None:
        assert isinstance(language.convention(kernel), FunctionCall | ModuleCall)

    def test_builds_once(self, language: Language, kernel: Kernel, device: Device) -> None:
        built = device.build(kernel)
        assert isinstance(built, Built), built
        assert built.kernel == kernel
        assert built.resources
        assert device.build(kernel) == built

    def test_a_source_that_does_not_build_is_a_failure(self, kernel: Kernel, broken: str, device: Device) -> None:
        failure = device.build(replace(kernel, source=broken))
        assert isinstance(failure, Failure)
        assert failure.stage == "build"
        assert failure.message

    def test_computes_what_it_should(self, language: Language, kernel: Kernel, device: Device) -> None:
        built = device.build(kernel)
        assert isinstance(built, Built), built
        results = device.run(built, [self.call(language, kernel, elements) for elements in (1000, 1)], self.timeout_s)
        for elements, outcome in zip((1000, 1), results, strict=True):
            assert isinstance(outcome, Outcome), outcome
            expected = 2 * np.linspace(-3.0, 3.0, elements, dtype=np.float32) + 1
            np.testing.assert_allclose(outcome.outputs[0].array, expected, rtol=1e-6)
            assert outcome.outputs[0].written.all(), "every element was stored to"

    def test_costs_are_those_of_lines_of_the_file(self, language: Language, kernel: Kernel, device: Device) -> None:
        built = device.build(kernel)
        assert isinstance(built, Built), built
        (outcome,) = device.run(built, (self.call(language, kernel, 1000),), self.timeout_s)
        assert isinstance(outcome, Outcome), outcome
        (launch,) = outcome.profile.launches
        lines = language.source_lines(kernel, launch)
        hottest = max(launch.lines, key=lambda cost: cost.warp_instructions)
        assert lines[hottest.line - 1].strip()
        assert lines[hottest.line - 1] in kernel.source.split("\n")
