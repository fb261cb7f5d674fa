"""From lines and regions of one page to blocks in reading order; shared by the layout and the ocr route.

One file, one idea: columns and reading order, tables from aligned words, running headers and footers,
paragraphs. Pure geometry on the types of `pipeline.page_model`: no model, no file, no PDF is opened here.
"""
