"""What a Celery task does when its message comes: claim a piece of work, do it, report it; until there is none.

One file for each kind of work. `loop` claims and turns whatever goes wrong into a report; the kinds raise.
"""
