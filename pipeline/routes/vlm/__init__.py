"""The vlm route: a document model behind an engine says what stands where, and reads what has to be read.

MinerU's two-step extraction: a question about the whole page (its blocks, in reading order), then one about each
block. Where the page has a sound text layer, its text is taken from there and the model is asked for structure,
tables and formulas alone.

    window.py       the pages of a window, together: who waits for the engine does not wait for each other
    extract.py      the two steps of one page
    completions.py  one question over HTTP: deadline, retries, loops
    budget.py       how many tokens an answer may have
    loops.py        text that has begun to repeat itself
    plausible.py    whether a layout can be that of this page
    text.py         the page's own text, block by block
    fallback.py     a block without an answer: from the text layer, by OCR, as a picture
    page.py         answered blocks to a `PageModel`
"""
