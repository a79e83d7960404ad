"""The live page: all runs below a folder, their reports while they go on, and buttons to start, stop and resume.

One subject per module: `paths` (which files may be named), `writing` (who is at work on a run), `runs` (runs as frozen
records), `processes` (what the page starts), `asking` (what a form asks for), `security` (who may ask), `events`
(server-sent events), `pages` (templates), `app` (routes) and `server`.  Needs the extra ``web``; nothing else imports
this package but ``cupilot ui``, and only `app` and `server` import Starlette and uvicorn.
"""
