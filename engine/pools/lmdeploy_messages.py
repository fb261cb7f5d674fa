"""LMDeploy's requests and responses, made from ours and read into ours. Imports LMDeploy; only for engine processes."""

from __future__ import annotations

from typing import Any

from lmdeploy.messages import ResponseType
from lmdeploy.pytorch.disagg.conn.protocol import MigrationRequest
from lmdeploy.pytorch.engine.request import RequestType
from lmdeploy.pytorch.messages import SamplingParam

from engine.pools.errors import EngineFailed
from engine.pools.migration_backend import PROTOCOL
from engine.pools.sequence import Job, Step


def add_session(session_id: int) -> tuple[Any, dict[str, Any]]:
    return RequestType.ADD_SESSION, {"session_id": session_id, "response": False}


def add_message(session_id: int, job: Job) -> tuple[Any, dict[str, Any]]:
    return RequestType.ADD_MESSAGE, {
        "session_id": session_id,
        "token_ids": list(job.prompt.token_ids),
        "sampling_param": SamplingParam.from_gen_config(job.config),
        "adapter_name": None,
        "input_multimodals": list(job.prompt.images) or None,
        "migration_request": _migration_request(session_id, job),
        "with_cache": job.keep_cache,
        "preserve_cache": job.keep_cache,
    }


def _migration_request(session_id: int, job: Job) -> Any:
    if job.pull is None:
        return None
    return MigrationRequest(
        protocol=PROTOCOL,
        remote_engine_id=job.pull.link,
        remote_session_id=session_id,
        remote_token_id=job.first_token,
        remote_block_ids=list(job.pull.remote_blocks),
    )


def step_of(response: Any, sent: int) -> Step:
    """What LMDeploy's response says beyond what has been told. It carries all tokens so far, not the new ones."""

    data = response.data or {}
    if response.type not in (ResponseType.SUCCESS, ResponseType.FINISH):
        error = data.get("error")
        return Step(error=error or EngineFailed(f"LMDeploy answered {response.type.name}. {response.err_msg}".strip()))
    tokens = data["token_ids"]
    metrics = data.get("req_metrics")
    return Step(
        token_ids=tuple(int(token) for token in tokens[sent:]),
        finished=response.type is ResponseType.FINISH,
        blocks=tuple(data.get("cache_block_ids") or ()),
        cached_tokens=metrics.cached_tokens if metrics else 0,
    )
