"""A model that follows a script: its prompt is a JSON list of tool calls, and it makes one after the other.

Then it says what it heard: a JSON list with one text for each call, as the framework handed it over. A framework that
stops at a tool's error never comes to that.
"""

import json
import re


def prompt(calls):
    """Return a prompt that makes `calls`, pairs of a tool's name and its arguments, one after the other."""
    return json.dumps(calls)


def next_step(prompt, heard, offered):
    """`("call", name, arguments)`, or `("say", text)` once every call was answered.

    Args:
        prompt: What the user said.
        heard: The answers of the calls so far.
        offered: The names of the tools. Frameworks put the server's name before them.
    """
    calls = json.loads(prompt)
    if len(heard) == len(calls):
        return "say", json.dumps(heard), {}
    wanted, arguments = calls[len(heard)]
    for name in offered:
        if re.search(rf"(^|[-_.]){re.escape(wanted)}$", name):
            return "call", name, arguments
    raise LookupError(f"{wanted} is not among the tools that the model was given: {sorted(offered)}")
