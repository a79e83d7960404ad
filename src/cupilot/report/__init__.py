"""Reports for people: one HTML file each, complete in itself, of a run and of a benchmark over a suite.

`run_report` and `suite_report` read a folder, change nothing in it, and return the page's text; a run may still be
going on.
"""

from cupilot.report.page import run_report, suite_report

__all__ = ["run_report", "suite_report"]
