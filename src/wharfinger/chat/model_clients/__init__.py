"""Clients of model APIs: OpenAI's Chat Completions, which many endpoints speak, Anthropic's Messages, Ollama's chat.

A conversation is a list of MCP's sampling messages, which represent text, images, tool calls and tool results in the
same way for every API. So a conversation can change its model, and a server's sampling request needs no conversion.
Each API has one module without I/O, which makes the headers and the body of a request, and reads the pieces of a
streamed answer. `ModelClient` adds HTTP: time limits, retries, and errors that say what to change.
"""

from __future__ import annotations

from .choosing import ModelChoice, choose_model
from .model_client import ModelClient
from .model_errors import ModelError
from .streamed_answer import ModelAnswer, Usage

__all__ = ["ModelAnswer", "ModelChoice", "ModelClient", "ModelError", "Usage", "choose_model"]
