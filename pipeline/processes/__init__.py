"""Work on untrusted pages happens in child processes that can be lost without losing anything else.

`PageProcess` is one child with a deadline, a memory ceiling and recycling; `PageProcesses` is a pool of them.
The child (`child.py`) runs named functions and knows nothing of pages; what it runs is in
`pipeline.recognise`, `pipeline.open` and `pipeline.assemble`. The parent imports no heavy library.
"""

from pipeline.processes.pool import PageProcesses
from pipeline.processes.process import Limits, PageProcess, Task

__all__ = ["Limits", "PageProcess", "PageProcesses", "Task"]
