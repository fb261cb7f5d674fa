"""The REST service: uploads in, states, events and results out. One file a resource in `routers/`.

May import: `workers`, `pipeline`, FastAPI. Must not know: Celery, SQL. The process imports no parser and no
model: pages are parsed by workers, and what must open a PDF here (a picture of a page) runs in a page process.

Start with `create_app(settings)`.
"""
