"""Tools for models: definitions in the format of each model API, calls in answers, and messages with results."""

from wharfinger.host.model_apis.api_table import MODEL_APIS, ModelAPI, find_calls, model_api
from wharfinger.host.model_apis.definitions import DroppedFromTool, OfferedTool, ToolDefinitions, define_tools
from wharfinger.host.model_apis.tool_calls import ModelToolCall
from wharfinger.host.model_apis.tool_outputs import MAX_RESULT_CHARACTERS, OutputLimits, ToolOutput, tool_output

__all__ = [
    "MAX_RESULT_CHARACTERS",
    "MODEL_APIS",
    "DroppedFromTool",
    "ModelAPI",
    "ModelToolCall",
    "OfferedTool",
    "OutputLimits",
    "ToolDefinitions",
    "ToolOutput",
    "define_tools",
    "find_calls",
    "model_api",
    "tool_output",
]
