"""The way into the engine: one address, behind it instances that prefill, decode, or do both.

Start at `serving.py`, one request's life; `app.py` is the HTTP surface. `registry.py` knows who is there, `links.py`
who can pull from whom and how fast, `admission.py` who waits, `placement.py` where a request goes. `openai/` turns
OpenAI's words into the instances' and back. Runs on one event loop, loads no torch and no lmdeploy; talks to instances
only in `engine.pools.messages`; knows nothing of documents.
"""
