"""Messages to a prompt, through the model's own chat template, which is treated as hostile (`template_sandbox`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import SecurityError

from tilec.errors import TilecError, shown
from tilec.runtime.template_sandbox import MAX_STEPS, STEPS_PER_MESSAGE, BudgetError, ChatSandbox


def render_chat(
    template: str, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **specials: Any
) -> str:
    """The prompt for `messages` (each with a "role" and a "content"), ready for `Tokenizer.encode`.

    `specials` are what else the template may read: the tokenizer's `named` texts (bos_token, eos_token, ...), tools,
    or switches that the model documents. Raises TilecError where the template refuses the messages, is no template,
    or does what a template from a stranger may not.
    """
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TilecError(
                f'need messages like {{"role": "user", "content": "..."}}, but message {index} is {shown(message)}'
            )
    variables = {
        "tools": None,
        "documents": None,
        **specials,
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": add_generation_prompt,
    }
    sandbox = ChatSandbox(steps=MAX_STEPS + STEPS_PER_MESSAGE * len(messages))
    try:
        return sandbox.run(template, variables)
    except (SecurityError, BudgetError) as error:
        raise TilecError(
            f"the model's chat template is refused: {error.message}; use the model without its template (--raw)"
        ) from None
    except TemplateError as error:
        raise TilecError(
            f"the model's chat template cannot render these messages: {error.message or type(error).__name__}; "
            "check their roles, or use the model without its template (--raw)"
        ) from None
    except Exception as error:  # a stranger's program: any failure of it is its own, and none is ours
        raise TilecError(
            f"the model's chat template fails with {type(error).__name__}: {str(error)[:200]}; "
            "use the model without its template (--raw)"
        ) from None
