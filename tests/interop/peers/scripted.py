"""A model that follows a script. Its prompt is a JSON list of tool calls, which it makes one after the other.

Its final answer is a JSON list of the results as the framework passed them on. A framework that stops when a
tool fails never gets this answer.
"""

import json
import re


def prompt(calls):
    """Return a prompt with these calls, pairs of a tool's name and its arguments."""
    return json.dumps(calls)


def next_step(prompt, results, tool_names):
    """Return `("call", name, arguments)`, or `("say", text, {})` after all results.

    Args:
        prompt: The user's prompt.
        results: The results of the calls so far.
        tool_names: The names of the tools. Frameworks may prefix them with the server's name.
    """
    calls = json.loads(prompt)
    if len(results) == len(calls):
        return "say", json.dumps(results), {}
    tool, arguments = calls[len(results)]
    for name in tool_names:
        if re.search(rf"(^|[-_.]){re.escape(tool)}$", name):
            return "call", name, arguments
    raise LookupError(f"{tool} is not among the tools that the model was given: {sorted(tool_names)}")
