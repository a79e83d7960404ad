"""What the page shows and does: runs from their stores, joined with the processes that the page started for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from cupilot.errors import UserError
from cupilot.ui.new_run_form import FormChoices, NewRun, prepare, task_files
from cupilot.ui.paths import SEPARATOR, below
from cupilot.ui.process_manager import LOG_NAME, ProcessManager, ProcessStatus, tail
from cupilot.ui.runs import FINISHED, RUNNING, STOPPED, RunsFolder, RunSummary
from cupilot.ui.suites import SuitesFolder, SuiteSummary

CACHED_REPORTS = 4
Report = Callable[[Path], str]
"""Makes the report of a folder."""


@dataclass(frozen=True)
class RunRow:
    """A run, and the process that the page started for it, if any."""

    run: RunSummary
    process: ProcessStatus | None = None

    @property
    def can_stop(self) -> bool:
        return self.process is not None and self.process.running

    @property
    def can_resume(self) -> bool:
        return self.run.state == STOPPED and self.run.info is not None

    @property
    def note(self) -> str:
        """One sentence about the state; may be empty."""
        process, run = self.process, self.run
        if process is not None and process.stopping:
            return "stopping: candidates in flight are finished first"
        if process is not None and process.running and run.info is None:
            return "starting"
        if process is not None and process.status and run.state != FINISHED:
            return process.last_line or f"the process ended with status {process.status}"
        if run.state == RUNNING and process is None:
            return "started elsewhere: Ctrl-C there stops it"
        return run.why


@dataclass(frozen=True)
class SuiteRow:
    """A benchmark and its runs."""

    suite: SuiteSummary
    rows: tuple[RunRow, ...] = ()

    @property
    def running(self) -> bool:
        return any(row.run.state == RUNNING for row in self.rows)


class Dashboard:
    """Thread-safe; a `UserError` says why an action is not possible."""

    def __init__(
        self,
        runs: RunsFolder,
        processes: ProcessManager,
        choices: FormChoices,
        report: Report,
        suite_report: Report,
    ) -> None:
        self.runs = runs
        self.processes = processes
        self.choices = choices
        self.suites = SuitesFolder(runs.root)
        self._report, self._suite_report = report, suite_report
        self._lock = Lock()
        self._reports: dict[Path, tuple[RunSummary | SuiteSummary, str]] = {}

    def rows(self) -> tuple[RunRow, ...]:
        stored = [self._row(run) for run in self.runs.summaries()]
        known = {row.run.name for row in stored}
        starting = [row for name in self.processes.names() if name not in known and (row := self.row(name)) is not None]
        return (*starting, *stored)

    def row(self, name: str) -> RunRow | None:
        run, process = self.runs.summary(name), self.processes.status(name)
        if run is not None:
            return self._row(run)
        if process is None:
            return None
        # its process has not created a store yet, or failed before
        state = RUNNING if process.running else STOPPED
        return RunRow(RunSummary(name, state, changed_s=process.started_s), process)

    def _row(self, run: RunSummary) -> RunRow:
        process = self.processes.status(run.name)
        if process is not None and process.running:
            run = replace(run, state=RUNNING, why="")  # its process does not hold the lock yet, or no longer
        return RunRow(run, process)

    def report(self, name: str) -> str | None:
        """The report's HTML, cached for each state of a run: making it takes a second or more."""
        folder, run = self.runs.path(name), self.runs.summary(name)
        return None if folder is None or run is None else self._cached(folder, run, self._report)

    def suite(self, name: str) -> SuiteRow | None:
        """A benchmark, or None."""
        found = self.suites.summary(name)
        return (
            None if found is None else SuiteRow(found, tuple(row for row in self.rows() if found.holds(row.run.name)))
        )

    def suite_report(self, name: str) -> str | None:
        """The report's HTML, cached as in `report`."""
        folder, suite = self.suites.path(name), self.suites.summary(name)
        return None if folder is None or suite is None else self._cached(folder, suite, self._suite_report)

    def _cached(self, folder: Path, state: RunSummary | SuiteSummary, make: Report) -> str:
        with self._lock:
            known = self._reports.pop(folder, None)
        if known is None or known[0] != state:
            known = (state, make(folder))
        with self._lock:
            self._reports[folder] = known
            while len(self._reports) > CACHED_REPORTS:
                self._reports.pop(next(iter(self._reports)))
        return known[1]

    def log_tail(self, name: str) -> str | None:
        """The end of a run's log; None when the page did not start the run."""
        path = below(self.runs.root, f"{name}{SEPARATOR}{LOG_NAME}")
        return tail(path) if path is not None and path.is_file() else None

    def task_files(self) -> tuple[str, ...]:
        return tuple(task_files(self.runs.root))

    def start(self, new_run: NewRun) -> str:
        """Start a run and return its name."""
        folder, arguments = prepare(self.runs.root, new_run)
        name = folder.relative_to(self.runs.root.resolve()).as_posix()
        self.processes.start(name, folder, arguments)
        return name

    def stop(self, name: str) -> None:
        if not self.processes.stop(name):
            raise UserError(f"{name} is not running, or was started elsewhere: Ctrl-C there stops it")

    def resume(self, name: str) -> None:
        folder, row = self.runs.path(name), self.row(name)
        if folder is None or row is None or not row.can_resume:
            raise UserError(f"{name} cannot be resumed: it is not a stopped run")
        self.processes.start(name, folder, ("resume", str(folder)))
