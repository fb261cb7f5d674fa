"""OpenAI's chat completions in the engine's words, and back. Pure translation, but for images that must be fetched."""
