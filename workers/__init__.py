"""Celery app and tasks, job store, artifact store, directory ingestion. May import `pipeline`, `engine`.

The job store (`workers.store`) is the truth; messages only say that there is work. A worker (`workers.runtime`)
claims pieces of it, does them in page processes (`workers.tasks`) and reports; the reaper brings back what a dead
worker held. Must not know: HTTP, the command line.
"""
