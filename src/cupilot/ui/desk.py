"""Runs as the page shows them: what their stores hold, and what is known of the programs that were started here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from cupilot.errors import UserError
from cupilot.ui.asking import Choices, NewRun, prepare, task_files
from cupilot.ui.paths import SEPARATOR, below
from cupilot.ui.processes import SAID, Job, Jobs, tail
from cupilot.ui.runs import FINISHED, RUNNING, STOPPED, RunsFolder, RunSummary
from cupilot.ui.suites import SuitesFolder, SuiteSummary

KEPT_REPORTS = 4
Report = Callable[[Path], str]
"""From a folder to a page."""


@dataclass(frozen=True)
class Row:
    """A run and the program that was started for it here, if one was."""

    run: RunSummary
    job: Job | None = None

    @property
    def can_stop(self) -> bool:
        return self.job is not None and self.job.running

    @property
    def can_resume(self) -> bool:
        return self.run.state == STOPPED and self.run.info is not None

    @property
    def note(self) -> str:
        """One sentence about the state, where there is something to say."""
        job, run = self.job, self.run
        if job is not None and job.stopping:
            return "stopping: candidates in flight are finished first"
        if job is not None and job.running and run.info is None:
            return "starting"
        if job is not None and job.status and run.state != FINISHED:
            return job.said or f"the program ended with status {job.status}"
        if run.state == RUNNING and job is None:
            return "started elsewhere: Ctrl-C there stops it"
        return run.why


@dataclass(frozen=True)
class SuiteRow:
    """A benchmark and its runs."""

    suite: SuiteSummary
    rows: tuple[Row, ...] = ()

    @property
    def running(self) -> bool:
        return any(row.run.state == RUNNING for row in self.rows)


class Desk:
    """What can be seen and done.  For any thread; a `UserError` says why something cannot be done."""

    def __init__(
        self,
        runs: RunsFolder,
        jobs: Jobs,
        choices: Choices,
        report: Report,
        suite_report: Report,
        clock: Callable[[], float],
    ) -> None:
        self.runs = runs
        self.jobs = jobs
        self.choices = choices
        self.clock = clock
        self.suites = SuitesFolder(runs.root)
        self._report, self._suite_report = report, suite_report
        self._lock = Lock()
        self._reports: dict[Path, tuple[RunSummary | SuiteSummary, str]] = {}

    def rows(self) -> tuple[Row, ...]:
        stored = [self._row(run) for run in self.runs.summaries()]
        known = {row.run.name for row in stored}
        begun = [row for name in self.jobs.names() if name not in known and (row := self.row(name)) is not None]
        return (*begun, *stored)

    def row(self, name: str) -> Row | None:
        run = self.runs.summary(name)
        if run is None:  # its program may not have come to making a store, or failed before
            job = self.jobs.job(name)
            return None if job is None else Row(RunSummary(name, _state(job), changed_s=job.started_s), job)
        return self._row(run)

    def _row(self, run: RunSummary) -> Row:
        job = self.jobs.job(run.name)
        if job is not None and job.running:
            run = replace(run, state=RUNNING, why="")  # the lock is not yet taken, or no longer held
        return Row(run, job)

    def report(self, name: str) -> str | None:
        """The report's text; made once for each state of a run, since that takes a second or more."""
        folder, run = self.runs.path(name), self.runs.summary(name)
        return None if folder is None or run is None else self._kept(folder, run, self._report)

    def suite(self, name: str) -> SuiteRow | None:
        """A benchmark; None where there is none."""
        found = self.suites.summary(name)
        return (
            None if found is None else SuiteRow(found, tuple(row for row in self.rows() if found.holds(row.run.name)))
        )

    def suite_report(self, name: str) -> str | None:
        """The report's text, see `report`."""
        folder, suite = self.suites.path(name), self.suites.summary(name)
        return None if folder is None or suite is None else self._kept(folder, suite, self._suite_report)

    def _kept(self, folder: Path, state: RunSummary | SuiteSummary, make: Report) -> str:
        with self._lock:
            known = self._reports.pop(folder, None)
        if known is None or known[0] != state:
            known = (state, make(folder))
        with self._lock:
            self._reports[folder] = known
            while len(self._reports) > KEPT_REPORTS:
                self._reports.pop(next(iter(self._reports)))
        return known[1]

    def said(self, name: str) -> str | None:
        """The end of what the program of a run said; None where it was not started from here."""
        path = below(self.runs.root, f"{name}{SEPARATOR}{SAID}")
        return tail(path) if path is not None and path.is_file() else None

    def task_files(self) -> tuple[str, ...]:
        return tuple(task_files(self.runs.root))

    def start(self, asked: NewRun) -> str:
        """Start a run; gives its name."""
        folder, arguments = prepare(self.runs.root, asked)
        name = folder.relative_to(self.runs.root.resolve()).as_posix()
        self.jobs.start(name, folder, arguments)
        return name

    def stop(self, name: str) -> None:
        if not self.jobs.stop(name):
            raise UserError(f"{name} is not running, or was started elsewhere: Ctrl-C there stops it")

    def resume(self, name: str) -> None:
        folder, row = self.runs.path(name), self.row(name)
        if folder is None or row is None or not row.can_resume:
            raise UserError(f"{name} cannot be resumed: it is not a run that was stopped")
        self.jobs.start(name, folder, ("resume", str(folder)))


def _state(job: Job) -> str:
    return RUNNING if job.running else STOPPED
