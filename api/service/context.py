"""What every request of one application shares, and how a request comes by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request

from api.service.auth import Authenticator, Tenant
from api.service.limits import RateLimiter
from api.service.metrics import Metrics
from api.service.page_work import PageWork
from api.service.settings import ApiSettings
from api.service.uploads import Uploads
from workers.artifacts import ArtifactStore
from workers.settings import ServiceSettings
from workers.store.job_store import JobStore
from workers.store.types import Document
from workers.webhooks import WebhookSettings

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_STORE_THREADS = 4
_ACCEPT_THREADS = 2
_FILE_THREADS = 4


@dataclass(slots=True)
class Context:
    """The parts of one application. Questions, new documents and file work have threads of their own, so that a
    burst of uploads does not make a question about a document's state wait.

    Attributes:
        stopping: set when the service is asked to stop; streams end then.
    """

    settings: ServiceSettings
    api: ApiSettings
    store: JobStore
    artifacts: ArtifactStore
    authenticator: Authenticator
    metrics: Metrics
    page_work: PageWork
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    limiter: RateLimiter = field(default_factory=RateLimiter)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    store_threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="job-store")
    )
    accept_threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_ACCEPT_THREADS, thread_name_prefix="accept")
    )
    file_threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="files")
    )

    uploads: Uploads = field(init=False)

    def __post_init__(self) -> None:
        self.uploads = Uploads(self.artifacts, self.file_threads)

    async def ask(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call the job store (or anything as short) without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.store_threads, lambda: function(*args, **kwargs))

    async def accept(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call the job store for what is written through to the disk, one or two at a time."""
        return await asyncio.get_running_loop().run_in_executor(self.accept_threads, lambda: function(*args, **kwargs))

    async def read(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Read or write artifacts without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.file_threads, lambda: function(*args, **kwargs))

    async def document(self, document_id: str, tenant: Tenant) -> Document:
        """A document of the tenant. Raises NotFound, also for one of another tenant."""
        return await self.ask(self.store.document, document_id, tenant=tenant.name)

    def close(self) -> None:
        self.page_work.close()
        self.store_threads.shutdown(wait=True, cancel_futures=True)
        self.accept_threads.shutdown(wait=True, cancel_futures=True)
        self.file_threads.shutdown(wait=True, cancel_futures=True)


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def _tenant(request: Request) -> Tenant:
    context = context_of(request)
    tenant = context.authenticator(request)
    context.limiter.take(tenant)
    return tenant


Shared = Annotated[Context, Depends(context_of)]
Caller = Annotated[Tenant, Depends(_tenant)]
"""The tenant of a request that has shown a valid key and is within its rate."""
