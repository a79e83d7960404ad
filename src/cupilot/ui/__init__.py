"""The live page: all runs below a folder, their reports while they run, and buttons to start, stop and resume.

One subject per module: `paths` (which files a request may name), `run_lock` (whether a run is running), `runs` and
`suites` (summaries as frozen records), `process_manager` (the processes that the page starts), `new_run_form`,
`security` (access control), `events` (server-sent events), `pages` (templates), `dashboard` (what the routes show and
do), `app` (routes) and `server`.  Needs the extra ``web``.  Only ``cupilot ui`` imports this package, and only `app`,
`security` and `server` import Starlette and uvicorn.
"""
