"""The table in docs/providers.md matches the files."""

from __future__ import annotations

import re

from providers import shipped
from support.places import ROOT


def test_the_table_lists_every_provider_with_its_secrets() -> None:
    text = (ROOT / "docs" / "providers.md").read_text("utf-8")
    table = {
        row[0].strip(): row[1]
        for row in (line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| [a-z]", line))
    }
    wanted = {
        name: provider
        for name, provider in shipped.loaded().gateway.providers.items()
        if not provider.images and not name.startswith("sandbox")
    }
    assert set(table) == set(wanted)
    for name, provider in wanted.items():
        written = re.sub(r"(?m)(^|\s)#.*$", "", provider.document.text)
        assert set(re.findall(r"`(\w+)`", table[name])) == set(
            re.findall(r"\$secret\.([A-Z][A-Z0-9_]*)(?![\w?])", written)
        ), name


def test_the_required_providers_are_shipped() -> None:
    required = {
        "openai",
        "azure-openai",
        "anthropic",
        "gemini",
        "vertex",
        "bedrock",
        "mistral",
        "groq",
        "deepseek",
        "xai",
        "cohere",
        "together",
        "fireworks",
        "openrouter",
        "cerebras",
        "perplexity",
        "moonshot",
        "moonshot-cny",
        "dashscope",
        "dashscope-cny",
        "zai",
        "zhipu",
        "minimax",
        "nvidia",
        "huggingface",
        "sambanova",
        "ollama",
        "vllm",
        "llama-cpp",
        "lm-studio",
        "deepinfra",
        "novita",
        "siliconflow",
        "volcengine",
        "voyage",
    }
    assert required <= set(shipped.loaded().gateway.providers)


def test_no_note_contains_a_secret() -> None:
    assert shipped.CANARY not in repr(shipped.loaded().notes)
