"""What the samples say. One place, so that the report, the scan and the tests agree on every sentence."""

from __future__ import annotations

TITLE = "How a Page Becomes Text"
RUNNING_HEADER = "Pagemill sample report"

ABSTRACT = (
    "This report was drawn by a short program. It has the parts that make documents hard to read for a "
    "machine: headings, columns, tables with and without rules, a list, a figure and a formula. Everything "
    "in it is invented except the description of what Pagemill does with a page."
)

OPENING = (
    "A document is opened once and checked before any work starts. An empty file, a file that is not a PDF "
    "and a file that needs a password are told apart, each with a code that never changes. What passes is "
    "counted: every page becomes a small task of its own.",
    "Pages are worked on in child processes. A page that crashes its process, or takes longer than its "
    "deadline, is tried once more on its own and is then reported. The other pages of the document are not "
    "affected, and the result says which pages are missing and why.",
)

ROUTES_INTRO = "Each page takes one of three routes, and the manifest records which one and the reason:"
ROUTES = (
    "layout, for a page with a sound text layer, put in order by its white space;",
    "flash, for a page whose script needs a closer look, read by MinerU;",
    "ocr, for a scan, and for a page whose text layer is garbage.",
)

FIGURE_CAPTION = "Figure 1. The life of a page, from the file to the Markdown."

COLUMNS = (
    (
        "The text layer",
        "A born-digital page carries its own characters, each with a place on the page. Reading them is fast "
        "and exact, but the file does not say which words form a line, which lines form a paragraph, or "
        "which column comes first. Those are decisions, and a wrong one turns a good page into a puzzle.",
        "Some pages carry a text layer that lies. The characters may be mapped to the wrong letters, or the "
        "layer may have been added by an old scanner that misread half of the words. Such a page is better "
        "treated as a picture, and the route decision looks for exactly these signs.",
    ),
    (
        "The picture of a page",
        "A scanned page is only a picture. It may lie on its side, it may be tilted by a degree or two, and "
        "it is never quite clean. It is turned upright first, then straightened, then divided into regions: "
        "titles, paragraphs, tables, figures and the lines that repeat on every page.",
        "Text is recognised line by line and put back into the regions. A line that no region claims is kept "
        "in its place in the reading order, because a missing sentence is worse than an extra one.",
    ),
    (
        "Putting it together",
        "All routes describe a page in the same terms, so one assembly serves them all. It joins a paragraph "
        "that runs over a column, drops the running header, keeps the page number out of the text, and "
        "writes Markdown for people and JSON for programs.",
        "What could not be read is never silent. A failed page leaves its number and its reason in the "
        "manifest, and a picture that may hold words keeps its place between the paragraphs.",
    ),
)

RULED_TITLE = "Table 1. Sample pages by route and result."
RULED_TABLE = (
    ("Route", "Pages", "", "Warnings"),
    ("", "complete", "failed", ""),
    ("flash", "412", "0", "3"),
    ("layout", "128", "1", "9"),
    ("ocr", "96", "2", "17"),
    ("All routes", "636", "3", "29"),
)
"""Two header rows; "Pages" spans two columns, "Route" and "Warnings" span two rows."""

UNRULED_TITLE = "Table 2. Invented operating result of a paper mill (in thousands)."
UNRULED_TABLE = (
    ("", "2024", "2025"),
    ("Sales of paper", "$ 18,240", "$ 19,905"),
    ("Sales of pulp", "6,118", "5,870"),
    ("Total revenue", "24,358", "25,775"),
    ("Raw material", "(9,402)", "(9,911)"),
    ("Energy and water", "(4,077)", "(3,690)"),
    ("Wages", "(6,515)", "(6,842)"),
    ("Operating result", "$ 4,364", "$ 5,332"),
)

TABLES_INTRO = (
    "A table with rules shows its cells. A table without rules shows them only by the alignment of its "
    "numbers, the way most financial statements are set."
)
BETWEEN_TABLES = (
    "The second table has no line between its cells. Numbers in brackets are negative, the currency sign "
    "stands only in the first and in the last row, and labels are set to the left."
)

FORMULA_INTRO = "The time for a document of n pages on w workers is close to"
FORMULA_OUTRO = (
    "where a is the time to start, and r and b are the seconds that one page takes to be read and to be "
    "built. The start is paid once, so that a long document gains more from a second worker than a short one."
)

CLOSING = (
    "Nothing in this report needs a network, a graphics card or a system font. Parse it, open the folder "
    "that was written, and compare it with these pages."
)

SCAN_TITLE = "Minutes of the Reading Room"
SCAN_TEXT = (
    "The committee met on the third of March in the small reading room. Seven members were present and two "
    "had sent their regrets. The minutes of the previous meeting were read and accepted without a change.",
    "The librarian reported that the catalogue of the east wing is complete. Of the older boxes, forty-one "
    "have been photographed page by page, and the pictures will be turned into text before the summer.",
    "It was agreed that damaged volumes are not to be opened flat. A page that cannot be read shall be noted "
    "with its number, and the work on the remaining pages shall go on.",
)
SCAN_TABLE_TITLE = "Boxes photographed so far"
SCAN_TABLE = (
    ("Shelf", "Boxes", "Pages", "State"),
    ("North 1", "12", "2,310", "complete"),
    ("North 2", "9", "1,764", "complete"),
    ("East 1", "14", "3,052", "in work"),
    ("East 4", "6", "988", "damaged"),
)
SCAN_TURNED_TITLE = "Notes on the Old Map"
SCAN_TURNED_TEXT = (
    "The map was bound sideways, as maps often are, and the scanner took it as it lay. A reader turns the "
    "book by a quarter; a program has to notice first that the letters stand on their side.",
    "Its scale is one to twelve thousand. The river is drawn in blue, the mill at its bend is marked with a "
    "wheel, and the road to the market follows the dry side of the valley.",
)

LETTER = (
    "Mill Lane 7\nRiverbend",
    "14 May 2025",
    "Dear reader,",
    "thank you for your question about the small samples. They may be copied, changed and passed on freely, "
    "since a program draws them and nobody else owns them.",
    "This letter is a picture in PNG format. It has no text layer at all, so every word that you find in the "
    "result was recognised from its shape.",
    "With kind regards,",
    "The miller",
)
"""Address, date, salutation, two paragraphs, closing, name."""
