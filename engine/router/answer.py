"""What a client has had of an answer, so that another instance can go on where one was lost."""

from __future__ import annotations

from engine.pools.messages import Chunk
from engine.router.errors import AnswerInterrupted


class Answer:
    """Takes chunks, gives on what is new of them.

    A greedy request gives the same tokens again. After a loss it is repeated from the start, images, penalties and
    stop texts included, and what the client has already is held against the repetition and left out.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self._token = 0
        self._character = 0

    def repeat(self) -> None:
        """The next chunk is the first one again."""
        self._token = self._character = 0

    def new_of(self, chunk: Chunk) -> Chunk | None:
        """What the client does not have yet; None if that is nothing.

        Raises:
            AnswerInterrupted: the repetition differs.
        """
        known = self.tokens[self._token : self._token + len(chunk.token_ids)]
        said = self.text[self._character : self._character + len(chunk.text)]
        if list(chunk.token_ids[: len(known)]) != known or not chunk.text.startswith(said):
            raise AnswerInterrupted("an instance was lost and the answer came out differently the second time")
        self._token += len(chunk.token_ids)
        self._character += len(chunk.text)
        tokens, text = chunk.token_ids[len(known) :], chunk.text[len(said) :]
        self.tokens += tokens
        self.text += text
        if not tokens and not text and chunk.finish_reason is None:
            return None
        return chunk.model_copy(update={"token_ids": tokens, "text": text})
