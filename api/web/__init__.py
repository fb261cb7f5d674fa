"""The web page: static files, served as they lie here. No build step, and nothing from another host.

`static/index.html` is the page, `static/js/` its modules, `static/vendor/` two libraries as their authors
published them. `serving.py` puts them into an application, with the headers that keep a document's text from
running as code. The page knows the service by its REST interface only.
"""
