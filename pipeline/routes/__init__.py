"""One file per route. Each turns an open page into MinerU's page model (`PageModel`) and knows no other route.

May import: `pipeline.structure`, `pipeline.models`, `pipeline.mineru`, the types. Must not know: files,
processes, documents.
"""
