"""What there is once the model is loaded: everything that serving a request takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.interconnect.transport import Transport
from engine.pools.answer_text import AnswerText
from engine.pools.cached_prefixes import CachedPrefixes
from engine.pools.counters import Counters
from engine.pools.engine_thread import EngineThread
from engine.pools.kv_leases import KVLeases
from engine.pools.messages import PeerAddress, Sampling
from engine.pools.peers import Peers
from engine.pools.prompt import PromptBuilder
from engine.pools.requests import Requests
from engine.pools.settings import InstanceSettings
from engine.pools.transports import open_transports


@dataclass(frozen=True, slots=True)
class Loaded:
    """Of one instance.

    Attributes:
        address: what others need in order to pull from it.
        not_offered: why a transport that was asked for is not.
    """

    settings: InstanceSettings
    builder: PromptBuilder
    engine: EngineThread
    transports: Mapping[str, Transport]
    not_offered: Mapping[str, str]
    leases: KVLeases
    peers: Peers
    prefixes: CachedPrefixes
    requests: Requests
    counters: Counters
    address: PeerAddress

    @classmethod
    def of(
        cls,
        settings: InstanceSettings,
        builder: PromptBuilder,
        engine: EngineThread,
        requests: Requests,
        counters: Counters,
        url: str,
    ) -> Loaded:
        """Open the transports over a loaded engine's KV cache."""
        assert engine.cache is not None
        transports, not_offered = open_transports(
            settings.transports,
            settings.engine_id,
            settings.token,
            engine.cache,
            host=settings.host,
            advertise=settings.advertise,
        )
        offers = tuple(transport.export_metadata().to_json() for transport in transports.values())
        return cls(
            settings,
            builder,
            engine,
            transports,
            not_offered,
            KVLeases(transports),
            Peers(transports, engine.cache.layout, frozenset(settings.transports)),
            CachedPrefixes(engine.total_blocks * engine.block_size if settings.prefix_caching else 0),
            requests,
            counters,
            PeerAddress(engine_id=settings.engine_id, epoch=settings.epoch, url=url, interconnect=offers),
        )

    @property
    def prompt_limit(self) -> int:
        """Tokens that a prompt may have, so that there is room for one of the answer."""
        return self.engine.max_session_len - 1

    def most_tokens(self, sampling: Sampling, prompt_tokens: int) -> int:
        """Tokens that an answer may have here."""
        return min(sampling.max_tokens, self.engine.max_session_len - prompt_tokens)

    def answer_text(self, sampling: Sampling, most: int) -> AnswerText:
        """An answer of at most so many tokens, before its first."""

        def decode(ids: Sequence[int]) -> str:
            return self.builder.decode(ids, skip_special_tokens=sampling.skip_special_tokens)

        return AnswerText(decode, sampling, most, self.builder.stop_token_ids)

    def close(self) -> None:
        """Blocking. Twice is harmless."""
        self.peers.close()
        for transport in self.transports.values():
            transport.close()
        self.engine.close()
