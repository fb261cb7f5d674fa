"""What a scan needs before it looks like a born-digital page: turn upright, deskew, read, find table cells.

One step a file, each on images and the types of `pipeline.page_model`. The steps are put together in
`pipeline.routes.ocr`.
"""
