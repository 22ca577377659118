"""Chat templates: rendered as transformers renders them, and kept from doing anything else."""

import time

import pytest

from tilec.errors import TilecError
from tilec.frontend import hub
from tilec.frontend.checkpoints import open_checkpoint
from tilec.runtime.chat import render_chat

MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "What is <b>1 & 2</b>?\n"},
    {
        "role": "assistant",
        "content": "<think>hm</think> Three.",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
    },
    {"role": "user", "content": "日本語 🎉"},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "description": "does 'f'", "parameters": {"x": ["é", 1.5, None, True]}},
    }
]

# Every construct that the templates of well-known Llama-like models use.
RICH = """
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0, text='') %}
{%- set users = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- macro header(role, end='|>') %}{{ '<|' ~ role ~ end }}{% endmacro %}
{{ header('system') }}{{ system_message }} {{ date_string + "\\n" }}
{% for tool in tools %}
    {{- tool | tojson(indent=4) }}
    {%- for key, value in tool.function.items() if key != "return" %}
        {{- key }}={{ value if value is string else value|tojson }}{{ ", " if not loop.last }}
    {%- endfor %}
{% endfor %}
{% for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
    {%- set content = message.content %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip().replace('T', 't') %}
    {%- endif %}
    {{- header(message.role, end='|>!') }}
    {%- if message == users[-1] and loop.last %}{{ "last " ~ loop.index0 ~ loop.length }}{% endif %}
    {%- generation %}{{ content }}{% endgeneration %}
    {%- if message.tool_calls is defined and message.tool_calls is not none %}
        {%- set out = message.tool_calls[0].function|tojson %}{{ out[:-1] }}
    {%- endif %}
    {%- set ns.text = ns.text + content %}
    {%- if loop.index > 90 %}{% break %}{% endif %}
    {{- {'a': content}['a']|length }}{{ [content, 'x']|join('-')|upper }}{{ message.get('name', 'nobody') }}
{% endfor %}
{{ ns.text|length }} {{ '=' * 3 }} {{ messages|map(attribute='role')|join(', ') }} {{ 2 ** 3 }} {{ ('a', 'b')|last }}
{{ (messages|length) in [1, 4] }}{{ dict(a=1).a }}{{ range(3)|list }}{{ none is none }}{{ (x.y is defined) if x }}
{% if add_generation_prompt %}{{ header('assistant') }}{% endif %}
"""


def refused(template, messages=MESSAGES[:2], **specials):
    """The message with which a template is refused; it must come soon."""
    begin = time.monotonic()
    with pytest.raises(TilecError) as error:
        render_chat(template, messages, **specials)
    assert time.monotonic() - begin < 12
    return str(error.value)


def test_a_template_with_everything_renders_as_in_transformers():
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    for prompt in (True, False):
        (want,), _ = utilities.render_jinja_template(
            [MESSAGES], tools=TOOLS, chat_template=RICH, add_generation_prompt=prompt, bos_token="<s>"
        )
        assert render_chat(RICH, MESSAGES, prompt, tools=TOOLS, bos_token="<s>") == want


def test_the_demo_models_template_gives_its_prompt():
    try:
        checkpoint = open_checkpoint(hub.resolve("smollm2-135m-instruct"))
    except TilecError as error:
        pytest.skip(str(error))
    text = render_chat(checkpoint.chat_template, [{"role": "user", "content": "Hi"}], **checkpoint.tokenizer().named)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert checkpoint.tokenizer().encode(text)[:2] == [1, 9690]


def test_markup_in_a_message_is_text_and_template_code_in_it_is_not_run():
    content = "<a> & {{ 7 * 7 }}"
    assert render_chat("{{ messages[0].content }}", [{"role": "user", "content": content}]) == content


def test_the_time_is_told_in_the_form_asked_for():
    assert render_chat("{{ strftime_now('%Y') }}", MESSAGES).isdigit()


def test_a_template_that_refuses_the_messages_says_why():
    message = refused("{{ raise_exception('only user and assistant') }}")
    assert "cannot render these messages: only user and assistant; check their roles" in message


def test_a_message_without_a_role_is_shown():
    assert "but message 1 is {'content': 'x'}" in refused("{{ messages }}", [{"role": "user"}, {"content": "x"}])


@pytest.mark.parametrize(
    "template",
    ["{% if", "{{ foo.bar.baz }}", "{{ messages[0].content + 1 }}", "{% include 'x' %}", "{{ 1 / 0 }}", "{{ x() }}"],
)
def test_a_broken_template_is_one_clear_error(template):
    message = refused(template)
    assert message.startswith("the model's chat template") and "--raw" in message and "\n" not in message


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'] }}",
        "{{ ''|attr('__class__') }}",
        "{{ [''] | map(attribute='__class__') | list }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace.__init__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ '{0.__class__}'.format('') }}",
        "{{ self.__init__ }}",
        "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
    ],
)
def test_pythons_internals_are_out_of_reach(template):
    message = refused(template)
    assert "is refused" in message and "is not allowed" in message


NS = "{% set ns = namespace(x=['abcdefgh'], s='abcdefgh') %}"


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}{% if n %}{{ f(n-1, varargs, varargs) }}{% endif %}{{ varargs }}{% endmacro %}{{ f(60, 1) }}",
        "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
        "{% block x %}{{ self.x() }}{{ self.x() }}{% endblock %}",
        NS + "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        NS + "{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x == ns.x }}",
        NS + "{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set ns.s = ns.s|replace('a', ns.s) %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}",
        NS + "{% for i in range(60) %}{% set n = namespace() %}{% set n.a = ns.x %}{% set n.b = n %}{% endfor %}",
        "{% set b = 'a' * 1000000 %}{{ range(100000)|map('replace', '1', b)|join }}",
        "{% set b = 'a' * 1000000 %}{{ [none, none, none]|map('default', b, true)|list * 1000 }}",
        "{{ 'a' * 10**10 }}",
        "{{ [1] * 10**10 }}",
        "{{ (10 ** 60) ** 60 ** 60 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'|center(1000000000) }}",
        "{{ 'a'|indent(1000000000, true) }}",
        "{{ 'a'|format }}",
        "{{ [1]|tojson(indent=1000000000) }}",
        "{{ [1]|batch(1000000000, 'x')|list }}",
        "{{ [1]|slice(1000000000)|list }}",
        "{{ [[1]]|sum(start=[]) }}",
        "{{ (5).to_bytes(1000000000) }}",
        "{{ dict.fromkeys(range(99999)) }}",
        "{{ lipsum(1000000) }}",
        "{{ ('a' * 100000000)|list }}",
        "{% set a = 'a' * 60000000 %}{% set b = 'a' * 60000000 %}" + "{% if a == b %}{% endif %}" * 4000,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ 1" + " + 1" * 20000 + " }}",
        "x" * 200_000,
    ],
)  # fmt: skip
def test_a_template_that_would_run_for_ever_or_fill_the_memory_is_stopped(template):
    refused(template)


def test_a_long_conversation_is_within_the_budget():
    messages = [{"role": "user", "content": "x" * 2000}, {"role": "assistant", "content": "y" * 2000}] * 500
    template = RICH.replace("ns.text + content", "content").replace("> 90", "> 9000")
    assert len(render_chat(template, messages, bos_token="", system_message="", tools=[])) > 2_000_000
