"""Chat templates: the same text as transformers gives, and no more power than a text needs."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.errors import CheckpointError
from engine.request import RequestError
from engine.text.template import ChatTemplate

TALK = [
    {"role": "system", "content": "You <b>help</b> & say 'hi'."},
    {"role": "user", "content": "  What is 1 < 2?\n\n"},
    {
        "role": "assistant",
        "content": "Yes.",
        "tool_calls": [{"name": "f", "arguments": {"x": "ü", "y": [1, 2]}}],
    },
    {"role": "user", "content": "{{ 7 * 7 }} {% raw %} 你好 😀"},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "chatml": "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "whitespace": """{{ bos_token }}
{% for m in messages %}
    {% if loop.first and m.role == 'system' %}
    [{{ m.content | trim }}]
    {% else %}
    {{ m.role | upper }}: {{ m.content }}
    {%- endif %}
{% endfor %}
{{- eos_token }}
""",
    "loop controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}"
    "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "tojson": "{{ messages | tojson }}{{ messages[2].tool_calls | tojson(indent=2) }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation tag": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% endif %}{% endfor %}",
    "undefined": "{{ tools is none }}{{ nothing is defined }}{{ messages[0].tool_calls is defined }}[{{ nothing }}]",
    "macros": "{% macro show(m) %}({{ m.content }}){% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}",
    "slices": "{{ messages[-1]['content'][:5] }}{{ messages[1:] | length }}{{ 'a,b'.split(',') | join('+') }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_what_transformers_gives(name: str) -> None:
    source = TEMPLATES[name]
    rendered, _ = render_jinja_template(
        conversations=[TALK], chat_template=source, add_generation_prompt=True, **SPECIAL
    )
    assert ChatTemplate(source, "x", SPECIAL).render(TALK) == rendered[0]


def test_variables_reach_the_template_and_cannot_hide_the_messages() -> None:
    template = ChatTemplate("{{ enable_thinking }}{{ messages | length }}", "x", {})
    assert template.render(TALK, variables={"enable_thinking": False, "messages": []}) == "False4"


def test_the_words_of_a_user_are_never_run() -> None:
    template = ChatTemplate("{{ messages[3].content }}", "x", {})
    assert template.render(TALK) == TALK[3]["content"]


def test_null_fields_are_absent() -> None:
    template = ChatTemplate("{{ messages[0].name is defined }}", "x", {})
    assert template.render([{"role": "user", "content": "a", "name": None}]) == "False"


def test_a_refusal_is_the_clients_to_know() -> None:
    template = ChatTemplate("{{ raise_exception('Roles must alternate') }}", "x", {})
    with pytest.raises(RequestError, match="Roles must alternate") as caught:
        template.render(TALK)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ namespace().__setattr__ }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ messages.append({}) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ raise_exception.__globals__ }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    text = ""
    with suppress(RequestError):
        text = ChatTemplate(source, "x", {}).render(TALK)
    # A forbidden attribute is refused where it is used, and prints as nothing where it is only read.
    assert text.strip() == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{% for a in range(99999) %}{{ f() if a > 99998 }}{% endfor %}{% endmacro %}"
        "{% for a in range(99999) %}{{ f() }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in range(999999999) %}{% endfor %}",
        "{{ 'a' * 999999999 }}",
        "{{ [1] * 999999999 }}",
        "{{ 999999999 * 'a' }}",
        "{{ 9 ** 99999999 }}",
        "{{ '%999999999d' % 1 }}",
        "{% for a in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
    ],
)
def test_limits_hold_and_end_in_a_sentence(source: str) -> None:
    template = ChatTemplate(source, "x", {})
    began = time.monotonic()
    with pytest.raises(RequestError, match="template refused") as caught:
        template.render(TALK, seconds=0.3)
    assert time.monotonic() - began < 20
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_broken_template_names_its_file_and_line() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json.*line 2"):
        ChatTemplate("{% if x %}\n{% endfor %}", "/m/tokenizer_config.json", {})


def test_a_long_conversation_is_fine() -> None:
    many: list[dict[str, Any]] = [{"role": "user", "content": "x" * 200}] * 2000
    assert len(ChatTemplate(TEMPLATES["chatml"], "x", {}).render(many)) > 400_000
