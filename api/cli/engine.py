"""`pagemill engine`: instances of the engine."""

from __future__ import annotations

import logging
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api.cli.engine_demo import demo

app = typer.Typer(
    help="Serve a vision-language model: one engine for each process, in a prefill pool and a decode pool.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TOKEN_VARIABLE = "PAGEMILL_ENGINE_TOKEN"


class RoleChoice(StrEnum):
    """As `engine.pools.messages.Role`, which is not imported for --help."""

    prefill = "prefill"
    decode = "decode"
    hybrid = "hybrid"


class Vendor(StrEnum):
    """Whose operators compute."""

    cpu = "cpu"
    cuda = "cuda"
    ascend = "ascend"
    camb = "camb"
    maca = "maca"


class Mode(StrEnum):
    """How operators run."""

    eager = "eager"
    graph = "graph"


app.command()(demo)


@app.callback()
def _engine() -> None:
    pass


@app.command(epilog=f"Start with:  export {TOKEN_VARIABLE}=$(openssl rand -hex 32)")
def serve(
    model: Annotated[Path, typer.Option(help="Folder of the checkpoint.", exists=True, file_okay=False)],
    role: Annotated[
        RoleChoice, typer.Option(help="prefill computes prompts, decode goes on from them, hybrid does both.")
    ] = RoleChoice.hybrid,
    router: Annotated[
        str | None, typer.Option(metavar="URL", help="Router to register with.", envvar="PAGEMILL_ENGINE_ROUTER")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Strangers must not reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 0,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="Name that others reach it by.", show_default="--host")
    ] = None,
    vendor: Annotated[Vendor, typer.Option(help="What computes; `pagemill doctor` says what is there.")] = Vendor.cpu,
    mode: Annotated[Mode, typer.Option(help="eager runs operators one by one, graph compiles decode.")] = Mode.eager,
    kv_blocks: Annotated[int, typer.Option(help="Blocks of the KV cache; 0 takes what --memory allows.", min=0)] = 0,
    memory: Annotated[float, typer.Option(help="GiB for the KV cache (cpu).", min=0.01)] = 2.0,
    block_size: Annotated[int, typer.Option(help="Tokens a block; KV is repacked if instances differ.", min=1)] = 64,
    session_len: Annotated[int, typer.Option(help="Tokens of prompt and answer together.", min=2)] = 8192,
    batch: Annotated[int, typer.Option(help="Sequences computed at once.", min=1)] = 32,
    chunk: Annotated[int, typer.Option(help="Tokens of one prefill step; longer prompts are cut.", min=1)] = 8192,
    prefix_caching: Annotated[bool, typer.Option(help="Keep the KV of prompts for others that begin alike.")] = True,
    lease: Annotated[float, typer.Option(help="Seconds that KV waits for its reader.", min=0.1, max=3600)] = 30.0,
    transport: Annotated[
        list[str] | None,
        typer.Option(help="Way for KV, best first; repeat it.", show_default="shared_memory, tcp"),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of numerical libraries.", min=1)] = os.cpu_count() or 1,
    cpu_share: Annotated[
        float | None,
        typer.Option(
            help="Hold its steps to this share of one core, for instances that share a machine in a measurement.",
            show_default="not held",
            envvar="PAGEMILL_ENGINE_CPU_SHARE",
        ),
    ] = None,
    engine_id: Annotated[
        str | None, typer.Option(help="Name that stays the same over restarts.", show_default="from host and port")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model for clients.", show_default="the folder's name")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve one instance of the engine.

    It loads the checkpoint, registers with the router and renews that for as long as it lives. Its role can be
    changed while it runs, without loading the model again. All instances and the router share one secret, in
    PAGEMILL_ENGINE_TOKEN. Stop it with Ctrl-C.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if len(token) < 16:
        _fail(f"{TOKEN_VARIABLE} must hold the secret of all instances, at least 16 characters.")
    if host in ("0.0.0.0", "::") and not advertise:
        _fail("Say with --advertise by which name others reach an instance that listens on every address.")
    if cpu_share is not None and not 0 < cpu_share <= 1:
        raise typer.BadParameter("not above 0 and at most 1", param_hint="--cpu-share")
    if log_level.upper() not in logging.getLevelNamesMapping():
        raise typer.BadParameter(f"unknown level {log_level!r}", param_hint="--log-level")
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    try:
        from engine.pools.serve import serve as run
        from engine.pools.serve import set_threads
        from engine.pools.settings import InstanceSettings
        from engine.role import Role

        set_threads(threads)
        import lmdeploy  # noqa: F401 - looked for before anything is started
    except ModuleNotFoundError as missing:
        _fail(
            f"The engine needs a package that is not installed ({missing.name}): pip install 'pagemill[engine]', "
            "then what requirements/engine.txt names."
        )
    settings = InstanceSettings(
        model=model,
        token=token,
        engine_id=engine_id or f"{advertise or host}:{port or os.getpid()}",
        epoch=time.time_ns() // 1_000_000,
        role=Role(role),
        vendor=vendor.value,
        eager=mode is Mode.eager,
        host=host,
        port=port,
        advertise=advertise,
        router=router,
        kv_blocks=kv_blocks,
        memory_bytes=int(memory * (1 << 30)),
        block_size=block_size,
        session_len=session_len,
        max_batch_size=batch,
        max_prefill_tokens=chunk,
        prefix_caching=prefix_caching,
        lease_s=lease,
        transports=tuple(transport or ("shared_memory", "tcp")),
        threads=threads,
        cpu_share=cpu_share,
        model_name=name or "",
    )
    try:
        status = run(settings)
    except OSError as error:
        _fail(f"Cannot listen on {host}:{port}: {error.strerror or error}.")
    logging.shutdown()
    # The engine's threads are of no use any more, and some of them do not end by themselves.
    os._exit(status)


def _fail(message: str) -> None:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(2)
