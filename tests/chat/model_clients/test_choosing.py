"""The choice of a model and its endpoint by a name and environment variables."""

from __future__ import annotations

import pytest

from wharfinger.chat.model_clients import choose_model
from wharfinger.chat.model_clients.model_errors import ModelNotChosen

KEYS = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-ant-1"}


@pytest.mark.parametrize(
    ("text", "environ", "url", "name"),
    [
        ("openai/gpt-5", {}, "https://api.openai.com/v1", "gpt-5"),
        ("openai/meta/llama-4", {"OPENAI_BASE_URL": "http://gpu:8000/v1/"}, "http://gpu:8000/v1", "meta/llama-4"),
        ("anthropic/claude-x", {}, "https://api.anthropic.com", "claude-x"),
        ("anthropic/claude-x", {"ANTHROPIC_BASE_URL": "https://proxy.test/v1"}, "https://proxy.test", "claude-x"),
        ("ollama/qwen3:8b", {}, "http://127.0.0.1:11434", "qwen3:8b"),
        ("ollama/m", {"OLLAMA_HOST": "0.0.0.0"}, "http://127.0.0.1:11434", "m"),
        ("ollama/m", {"OLLAMA_HOST": "0.0.0.0:80"}, "http://127.0.0.1:80", "m"),
        ("ollama/m", {"OLLAMA_HOST": "http://0.0.0.0"}, "http://127.0.0.1", "m"),
        ("ollama/m", {"OLLAMA_HOST": "http://[::]:5000/"}, "http://[::1]:5000", "m"),
        ("ollama/m", {"OLLAMA_HOST": "http://u:p@0.0.0.0:80"}, "http://u:p@127.0.0.1:80", "m"),
        ("ollama/m", {"OLLAMA_HOST": "u:p@gpu:80"}, "http://u:p@gpu:80", "m"),
        ("ollama/m", {"OLLAMA_HOST": "::1"}, "http://[::1]:11434", "m"),
        ("ollama/m", {"OLLAMA_HOST": "fe80::2"}, "http://[fe80::2]:11434", "m"),
        ("ollama/m", {"OLLAMA_HOST": "::"}, "http://[::1]:11434", "m"),
        (" openai/gpt-5\n", {}, "https://api.openai.com/v1", "gpt-5"),
        ("ollama/m", {"OLLAMA_HOST": ":5000"}, "http://127.0.0.1:5000", "m"),
        ("ollama/m", {"OLLAMA_HOST": "gpu"}, "http://gpu:11434", "m"),
        ("ollama/m", {"OLLAMA_HOST": "[::1]"}, "http://[::1]:11434", "m"),
        ("ollama/m", {"OLLAMA_HOST": "https://gpu.test/"}, "https://gpu.test", "m"),
    ],
)
def test_the_model_name_and_the_environment_determine_the_endpoint(
    text: str, environ: dict[str, str], url: str, name: str
) -> None:
    choice = choose_model(text, {**KEYS, **environ})
    assert (choice.base_url, choice.name, str(choice)) == (url, name, text.strip())


@pytest.mark.parametrize(
    ("text", "environ", "advice"),
    [
        (None, {}, "set WHARFINGER_MODEL.*OPENAI_API_KEY.*ANTHROPIC_API_KEY.*ollama"),
        ("", KEYS, "set WHARFINGER_MODEL"),
        (" \n", KEYS, "set WHARFINGER_MODEL"),
        ("gpt-5", KEYS, "write openai/gpt-5"),
        ("claude-x", KEYS, "write anthropic/claude-x"),
        ("qwen3", KEYS, "write ollama/qwen3"),
        ("x", KEYS, "write openai/NAME, anthropic/NAME or ollama/NAME"),
        ("openai/", KEYS, "write openai/NAME"),
        ("google/x", KEYS, "does not name a model"),
        ("openai/gpt-5", {}, "set OPENAI_API_KEY, or OPENAI_BASE_URL"),
        ("anthropic/x", {}, "set ANTHROPIC_API_KEY"),
        ("openai/x", {"OPENAI_BASE_URL": "gpu:8000"}, "OPENAI_BASE_URL is not a URL"),
        ("openai/x", {"OPENAI_BASE_URL": "http://gpu:0"}, "OPENAI_BASE_URL is not a URL"),
        ("ollama/x", {"OLLAMA_HOST": "ftp://gpu"}, "OLLAMA_HOST is not a URL"),
        ("openai/x", {"OPENAI_API_KEY": "sk-secret\nvalue"}, "OPENAI_API_KEY is not a key"),
    ],
)
def test_the_error_names_the_setting_to_change(text: str | None, environ: dict[str, str], advice: str) -> None:
    with pytest.raises(ModelNotChosen, match=advice) as caught:
        choose_model(text, environ)
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_text_of_a_chosen_model_has_no_secrets() -> None:
    choice = choose_model("openai/x", {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": "http://me:pass-word@gpu/v1"})
    assert "secret" not in f"{choice!r} {choice}" and "pass-word" not in repr(choice)
