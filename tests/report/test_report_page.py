"""The page's text: well-formed, complete, on its own, and proof against what it shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import vl_convert
from made_runs import HALF, HOSTILE, RUN_INFO, individuals, write_hostile_run, write_run, writing
from page_reader import Page, read_page

from cupilot.errors import MissingExtra
from cupilot.gpu import load_spec
from cupilot.records import Counter, Individual, Profile, Timing
from cupilot.report import chart, run_report
from cupilot.report.run import read_run
from cupilot.report.run_charts import convergence, roofline

LIMIT_BYTES = 2_000_000
RUNNABLE = ("", "text/javascript", "module")


def code(page: Page) -> list[str]:
    return [script.text for script in page.all("script") if script.attributes.get("type", "") in RUNNABLE]


def headings(page: Page) -> list[int]:
    return [int(e.tag[1]) for e in page.elements if re.fullmatch("h[1-6]", e.tag)]


@pytest.fixture
def page(run_folder: Path) -> Page:
    return read_page(run_report(run_folder))


def test_every_part_is_there(page: Page) -> None:
    assert [section.attributes["id"] for section in page.all("section")] == [
        "summary", "charts", "cycles", "lineage", "moves", "diff", "failures", "budget",
    ]  # fmt: skip
    assert page.all("title")[0].text == "relu on virtual:a100-80gb – cupilot"
    assert {link.attributes["href"] for link in page.all("a") if "nav" in link.inside} == {
        f"#{section.attributes['id']}" for section in page.all("section")
    }


def test_landmarks_and_headings_are_in_order(page: Page) -> None:
    assert [e.tag for e in page.elements if e.tag in ("header", "nav", "main", "footer")] == [
        "header", "nav", "main", "footer",
    ]  # fmt: skip
    levels = headings(page)
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_links_lead_somewhere_and_ids_are_unique(page: Page) -> None:
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert link.attributes["href"].removeprefix("#") in ids


def test_the_summary_says_where_numbers_are_from(page: Page) -> None:
    text = " ".join(page.by_id("summary").text.split())
    assert "best time, modelled250 µs ± 10 %" in text
    assert "over PyTorch, modelled2.00×" in text
    assert "over the plain kernel4.00×" in text
    assert "1 comparisons with a float64 reference" in text
    assert "Finished: all generations were done. 6 evaluated, 2 failed." in text


def test_dead_ends_say_why(page: Page) -> None:
    node = page.by_id("individual-2")
    assert "failed" in node.attributes["class"].split()
    assert "verify: wrong-result" in node.text
    assert "element 7 is 1.5" in node.text


def test_nothing_is_fetched_from_anywhere(run_folder: Path) -> None:
    text = run_report(run_folder)
    page = read_page(text)
    assert len(text.encode()) < LIMIT_BYTES
    for element in page.elements:
        assert not {"src", "srcset", "data", "poster", "action"} & set(element.attributes), element
        assert element.tag not in ("link", "iframe", "object", "embed", "base", "img")
    policy = page.all("meta", http_equiv="Content-Security-Policy")[0].attributes["content"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "@import" not in page.all("style")[0].text
    assert "url(" not in page.all("style")[0].text


def test_hostile_texts_stay_texts(tmp_path: Path, run_folder: Path) -> None:
    text = run_report(write_hostile_run(tmp_path / "hostile"))
    text.encode()
    hostile, kind = read_page(text), read_page(run_report(run_folder))
    assert code(hostile) == code(kind), "exactly our own scripts can run"
    assert {e.tag for e in hostile.elements} == {e.tag for e in kind.elements}
    assert not any(name.startswith("on") for e in hostile.elements for name in e.attributes)
    lines = json.loads(hostile.by_id("sources").text)["lines"]
    assert f"// {HOSTILE}{HALF}" in lines, "and arrive as they were"


def test_a_run_that_is_going_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with writing(folder) as store:
        assert "has not begun" in run_report(folder)
        store.begin(RUN_INFO)
        for count in range(len(individuals()) + 1):
            page = read_page(run_report(folder))
            assert "Not finished" in page.by_id("summary").text
            assert len(page.all("details", class_="node")) <= count
            if count < len(individuals()):
                store.add(individuals()[count])


def test_nothing_but_failures(tmp_path: Path) -> None:
    page = read_page(run_report(write_run(tmp_path / "run", individuals()[2:3], finished=False)))
    assert [section.attributes["id"] for section in page.all("section")] == [
        "summary", "lineage", "moves", "diff", "failures", "budget",
    ]  # fmt: skip


def write_measured(folder: Path, gpu: str, source: str = "model") -> Path:
    """A run on a real GPU; ``source`` is where its bytes are from."""
    with writing(folder) as store:
        store.begin(replace(RUN_INFO, device="cuda:0", gpu=gpu))
        for one in individuals():
            store.add(measured(one, source))
    return folder


def measured(one: Individual, source: str) -> Individual:
    evaluation = replace(one.evaluation, device="cuda:0")
    if evaluation.timing is None or evaluation.profile is None:
        return replace(one, evaluation=evaluation)
    launches = tuple(
        replace(
            launch,
            counters=tuple(replace(c, source=source if c.source == "model" else c.source) for c in launch.counters),
        )
        for launch in evaluation.profile.launches
    )
    timing = Timing(evaluation.timing.time_s, "measured", "cuda:0", "dram")
    return replace(one, evaluation=replace(evaluation, timing=timing, profile=Profile("cuda:0", launches)))


@pytest.mark.parametrize(("gpu", "named"), [("", "cuda:0"), ("geforce-rtx-3080", "cuda:0 (geforce-rtx-3080)")])
def test_a_gpu_that_is_in_no_catalogue(tmp_path: Path, gpu: str, named: str) -> None:
    page = read_page(run_report(write_measured(tmp_path / "run", gpu)))
    assert (
        f"There is no roofline: the ceilings of {named} are not in the catalogue of GPUs." in page.by_id("charts").text
    )
    assert json.loads(page.by_id("sources").text)["kernels"][0]["basis"] == "warp instructions"


@pytest.mark.parametrize(("source", "bytes_are"), [("model", "modelled"), ("ncu", "measured by ncu")])
def test_a_real_gpu_has_the_roofline_of_its_spec(tmp_path: Path, source: str, bytes_are: str) -> None:
    folder = write_measured(tmp_path / "run", "h100-sxm", source)
    drawn = roofline(read_run(folder))
    assert drawn is not None
    data = json.loads(drawn.spec)["datasets"]
    gpu = load_spec("h100-sxm")
    assert max(row["y"] for row in data["roofs"] if row["roof"] == "CUDA cores, fp32") == gpu.fp32_flop_per_s
    assert {dot["time"].rpartition(" ")[2] for dot in data["dots"]} == {"(measured)"}
    assert f"times are measured, operations are counted, bytes of L2 and DRAM {bytes_are}" in drawn.notes[0]
    page = read_page(run_report(folder))
    assert drawn.notes[0] in page.by_id("charts").text
    assert f"cuda:0 ({gpu.title})" in page.by_id("summary").text + page.by_id("budget").text


# --- charts --------------------------------------------------------------------------------------


def test_every_individual_with_a_time_is_a_dot(run_folder: Path) -> None:
    run = read_run(run_folder)
    drawn = roofline(run)
    assert drawn is not None
    spec = json.loads(drawn.spec)
    dots = spec["datasets"]["dots"]
    assert [dot["id"] for dot in dots] == [0, 1, 3, 5, 6]
    best = next(dot for dot in dots if dot["kind"] == "best")
    assert (best["id"], best["DRAM"], best["y"]) == (5, pytest.approx(1e6 / 8e6), pytest.approx(1e6 / 250e-6))
    assert "2 of 7 individuals have no place" in drawn.notes[-1]
    roofs = {row["roof"] for row in spec["datasets"]["roofs"]}
    assert roofs == {"L1", "L2", "DRAM", "CUDA cores, fp32", "tensor cores, tf32"}
    gpu = load_spec("a100-80gb")
    assert (
        max(row["y"] for row in spec["datasets"]["roofs"] if row["roof"] == "CUDA cores, fp32") == gpu.fp32_flop_per_s
    )


def test_without_operations_instructions_are_counted(tmp_path: Path) -> None:
    plain, *_ = individuals()
    profile = plain.evaluation.profile
    assert profile is not None
    counters = tuple(
        Counter(c.name, 0.0 if c.name == "flop_fp32" else c.value, c.source) for c in profile.launches[0].counters
    )
    silent = Profile(profile.device, (replace(profile.launches[0], counters=counters),))
    one = replace(plain, evaluation=replace(plain.evaluation, profile=silent))
    drawn = roofline(read_run(write_run(tmp_path / "run", [one], finished=False)))
    assert drawn is not None
    spec = json.loads(drawn.spec)
    assert "warp instructions per second" in json.dumps(spec["encoding"])
    assert spec["datasets"]["dots"][0]["y"] == pytest.approx(8e5 / 1e-3)


def test_the_best_so_far_never_rises(run_folder: Path) -> None:
    drawn = convergence(read_run(run_folder))
    assert drawn is not None
    data = json.loads(drawn.spec)["datasets"]
    assert [row["t"] for row in data["best"]] == [pytest.approx(t) for t in (1000, 500, 500, 500, 500, 250, 250)]
    assert [(row["n"], row["failure"]) for row in data["failed"]] == [
        (3, "verify: wrong-result"),
        (5, "translate: no-kernel"),
    ]


def test_charts_are_valid(run_folder: Path) -> None:
    run = read_run(run_folder)
    for drawn in (roofline(run), convergence(run)):
        assert drawn is not None
        compiled = vl_convert.vegalite_to_vega(drawn.spec, vl_version=chart.VEGA_LITE)
        assert compiled["marks"]


def test_a_chart_takes_exactly_what_it_has_places_for() -> None:
    with pytest.raises(KeyError):
        chart.chart("convergence", {})
    with pytest.raises(KeyError, match="no place for other"):
        chart.chart(
            "suite", {}, description="", x_domain=[1, 2], x_ticks=[], categories=[], systems=[], height=1, other=1
        )


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"pip install .cupilot\[report\]"):
        chart.drawing_code.__wrapped__()


def test_the_turns_of_a_model_are_in_the_lineage_and_their_sum_in_the_budget(run_folder: Path) -> None:
    text = run_report(run_folder)
    lineage, _, rest = text.partition('id="moves"')
    for part in ("compiles; 40 registers", "right, 50 µs", "no action in the reply", "its best kernel is handed in"):
        assert part in lineage
    budget = rest.partition('id="budget"')[2]
    assert re.search(r"2 turns in 1 dialogues. The tools added 12.500 of their 22.500 tokens, and 3 s", budget)
