"""`wharfinger chat` at a terminal and in pipes, with an endpoint that each test scripts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chat.scripted_endpoint import Call, Endpoint, Hold, Refusal, TokenLimit, endpoint
from tests.cli.conftest import COMMAND, ENVIRONMENT, Terminal, run_server_file
from tests.waiting import wait_until
from wharfinger.chat.conversation import STOPPED

Start = Callable[..., Terminal]
SECRETS = ("sk-test-0123456789abcdef", "sk-ant-0123456789abcdef")
NO_MODELS = dict.fromkeys(("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "OLLAMA_HOST"), "")
PROMPT = "\x1b[?2004h"
"""prompt_toolkit writes this sequence, which turns on bracketed paste, when it begins to read a line."""

HARBOUR = '''
import asyncio, os, sys
from pathlib import Path
from wharfinger import Context, Server, ToolError
from wharfinger import types as t

server = Server("harbour", instructions="Ships and tides.")
here = Path(__file__).parent
(here / "pids").open("a").write(f"{os.getpid()}\\n")


@server.resource("tide://now", mime_type="text/plain", title="The tide now")
def now() -> str:
    """How high the water is."""
    return f"{(here / 'height').read_text()} m high"


@server.tool
def rise(by: int) -> str:
    """Let the water rise."""
    height = int((here / "height").read_text()) + by
    (here / "height").write_text(str(height))
    return f"{height} m"


@server.tool(annotations={"readOnlyHint": True})
def look() -> str:
    """Look at the water."""
    return "calm"


@server.tool
async def wait() -> str:
    """Wait for the tide."""
    (here / "waiting").touch()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        (here / "cancelled").touch()
        raise
    return "waited"


@server.tool
async def berth(ctx: Context) -> str:
    """Assign a berth."""
    answer = await ctx.elicit("Which berth?", {"type": "object", "properties": {"number": {"type": "integer"}}})
    return f"berth {answer}"


@server.tool
async def poem(ctx: Context) -> str:
    """Write a poem."""
    return f"poem: {(await ctx.sample('A poem about tides', max_tokens=50)).text}"


@server.prompt
def briefing(vessel: str) -> str:
    """Brief somebody on a vessel."""
    return f"Brief me on {vessel}."


@server.prompt
def album() -> list[t.PromptMessage]:
    """Describe a picture."""
    notes = t.EmbeddedResource(resource=t.ResourceContents(uri="note://1", text="It is a red hull."))
    contents = [t.TextContent(text="Describe it."), notes, t.ImageContent(data=b"x", mime_type="image/png")]
    return [t.PromptMessage(role="user", content=content) for content in contents]
'''

HOSTILE = """
from wharfinger import Server

EVIL = "\\x1b]0;owned\\x07\\x1b[2J\\u202eevil"
server = Server("harbour", instructions=EVIL)


@server.resource("tide://now", mime_type="text/plain", title=EVIL, description=EVIL)
def now() -> str:
    return EVIL


@server.tool(description=EVIL)
def rise() -> str:
    return EVIL * 100_000


@server.prompt(description=EVIL)
def briefing() -> str:
    return EVIL
"""


@pytest.fixture(params=["openai", "anthropic", "ollama"])
def each_api(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    with endpoint(request.param) as model:
        yield model


@pytest.fixture
def model() -> Iterator[Endpoint]:
    with endpoint("openai") as started:
        yield started


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    """The file of a server. Its tools change the file `height` in the same folder."""
    file = tmp_path / "harbour.py"
    file.write_text(HARBOUR)
    (tmp_path / "height").write_text("3")
    return file


class ChatSession:
    """A chat at a terminal. `expect` waits for text after the text that it found before."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.seen = 0

    def expect(self, text: str) -> str:
        self.terminal.wait_until(lambda: text in self.terminal.output[self.seen :], text)
        index = self.terminal.output.index(text, self.seen)
        before = self.terminal.output[self.seen : index]
        self.seen = index + len(text)
        return before

    def send(self, line: str) -> None:
        self.expect(PROMPT)
        self.terminal.press(line + "\r")

    def type(self, line: str) -> None:
        """Answer a prompt that is read as a line."""
        self.terminal.press(line + "\n")


@pytest.fixture
def start_chat(terminal: Start, harbour: Path, tmp_path: Path) -> Callable[..., ChatSession]:
    """Start a chat with the server of `harbour`."""

    def begin(model: Endpoint, *args: str, targets: tuple[str, ...] = ("harbour.py",)) -> ChatSession:
        return ChatSession(terminal("chat", *args, *targets, env=environment(model, tmp_path)))

    return begin


def environment(model: Endpoint, folder: Path) -> dict[str, str]:
    return {
        **NO_MODELS,
        **model.environment,
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
        "COLUMNS": "200",
    }


def stored_conversation(folder: Path) -> dict[str, Any]:
    """Return the only stored conversation."""
    (file,) = (folder / "state" / "wharfinger" / "chat").iterdir()
    text = file.read_text()
    assert not any(secret in text for secret in SECRETS)
    conversation: dict[str, Any] = json.loads(text)
    return conversation


def run_chat(
    model: Endpoint | None, folder: Path, *args: str, text: str | None = None, env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run the command on pipes. Return its exit code, stdout and stderr."""
    chat_environment = environment(model, folder) if model is not None else {**NO_MODELS, "HOME": str(folder)}
    result = subprocess.run(
        [*COMMAND, "chat", *args],
        cwd=folder,
        env={**ENVIRONMENT, **chat_environment, **(env or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=50,
        **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),  # type: ignore[call-overload]
    )
    assert not any(secret in result.stdout + result.stderr for secret in SECRETS)
    return result.returncode, result.stdout, result.stderr


# At a terminal


def test_a_question_is_answered_with_a_resource_and_a_tool(
    each_api: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    hold = Hold()
    each_api.answer("The water ", hold, "is low. ", Call("rise", {"by": 2}))
    each_api.answer("Now it is 5 m.")
    chat = start_chat(each_api)
    chat.send("How high is @tide://now?")
    chat.expect("@tide://now  harbour, ")  # with the reason
    chat.expect("The water ")
    assert "is low" not in chat.terminal.output  # the first piece is shown before the endpoint sends the next
    hold.release()
    chat.expect("is low.")
    chat.expect("→ rise(by=2)")
    chat.expect("The model wants to run rise of harbour")
    chat.expect("by: 2")
    chat.expect("Run it?")
    assert (tmp_path / "height").read_text() == "3"
    chat.type("y")
    chat.expect("← rise: 5 m")
    chat.expect("Now it is 5 m.")
    assert (tmp_path / "height").read_text() == "5"
    first, second = (json.dumps(request) for request in each_api.requests)
    assert "3 m high" in first and "Ships and tides." in first and "Let the water rise." in first
    assert "5 m" in second
    chat.send("/exit")
    assert chat.terminal.wait_for_exit() == 0
    assert stored_conversation(tmp_path)["title"] == "How high is @tide://now?"


def test_a_refused_tool_does_not_run_and_always_approves_later_calls(
    model: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    model.answer(Call("rise", {"by": 1}))
    model.answer("I may not.")
    chat = start_chat(model)
    chat.send("rise")
    chat.expect("Run it?")
    chat.type("perhaps")
    chat.expect("Type y, n, a or never.")
    chat.type("n")
    chat.expect("✗ rise: ")
    chat.expect("I may not.")
    assert (tmp_path / "height").read_text() == "3"
    assert "not approve" in model.last_texts

    model.answer(Call("rise", {"by": 1}))
    model.answer(Call("rise", {"by": 1}))
    model.answer("Done.")
    chat.send("again")
    chat.expect("Run it?")
    chat.type("a")
    before = chat.expect("Done.")
    assert "Run it?" not in before
    assert (tmp_path / "height").read_text() == "5"


def test_text_typed_before_an_approval_prompt_does_not_answer_it(
    model: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    hold = Hold()
    model.answer("Wait ", hold, Call("rise", {"by": 1}))
    model.answer("Refused.")
    chat = start_chat(model)
    chat.send("rise")
    chat.expect("Wait ")
    chat.type("y")
    chat.expect("y\n")  # the terminal echoes it
    hold.release()
    chat.expect("Run it?")
    chat.type("n")
    chat.expect("Refused.")
    assert (tmp_path / "height").read_text() == "3"


def test_ctrl_c_stops_the_answer_and_not_the_program(
    each_api: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    hold = Hold()
    each_api.answer("It begins ", hold, "and never ends.")
    chat = start_chat(each_api)
    chat.send("tell me")
    chat.expect("It begins ")
    chat.terminal.press("\x03")
    chat.expect("Stopped.")
    assert hold.disconnected.wait(10)  # the endpoint sees the disconnect
    each_api.answer("Here I am.")
    chat.send("are you there?")
    chat.expect("Here I am.")
    assert "It begins  [stopped by the user]" in each_api.last_texts
    chat.expect(PROMPT)
    chat.terminal.press("\x03")
    chat.expect("Press Ctrl-D or type /exit to leave.")
    chat.expect(PROMPT)
    chat.terminal.press("\x04")
    assert chat.terminal.wait_for_exit() == 0


def test_ctrl_c_stops_a_tool_call_at_its_server(
    each_api: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    each_api.answer(Call("wait"), Call("wait", id="call-2"))
    chat = start_chat(each_api, "--approve", "never")
    chat.send("wait")
    wait_until((tmp_path / "waiting").exists, "the tool is called")
    chat.terminal.press("\x03")
    chat.expect("Stopped.")
    wait_until((tmp_path / "cancelled").exists, "the call is cancelled")
    each_api.answer("Fine.")
    chat.send("and now?")
    chat.expect("Fine.")
    assert each_api.last_texts.count(STOPPED) == 2  # the APIs require a result for every call


def test_ctrl_c_at_an_approval_prompt_stops_the_call(
    model: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    model.answer(Call("rise", {"by": 1}))
    chat = start_chat(model)
    chat.send("rise")
    chat.expect("Run it?")
    chat.terminal.press("\x03")
    chat.expect("Stopped.")
    model.answer("Fine.")
    chat.send("and now?")
    chat.expect("Fine.")
    assert (tmp_path / "height").read_text() == "3"


def test_a_server_that_is_killed_is_started_again(
    model: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    model.answer(Call("look"))
    model.answer("Calm.")
    chat = start_chat(model, "--approve", "read-only")
    chat.send("look")
    chat.expect("Calm.")
    pids = (tmp_path / "pids").read_text().split()
    os.kill(int(pids[-1]), 9)
    wait_until(lambda: len((tmp_path / "pids").read_text().split()) > len(pids), "the server is started again")
    model.answer(Call("look"))
    model.answer("Still calm.")
    chat.send("again")
    chat.expect("← look: calm")
    chat.expect("Still calm.")


def test_a_server_over_http_may_restart(model: Endpoint, start_chat: Callable[..., ChatSession], harbour: Path) -> None:
    with run_server_file(harbour) as url:
        chat = start_chat(model, "--approve", "never", targets=(url,))
        model.answer(Call("look"))
        model.answer("Calm.")
        chat.send("look")
        chat.expect("Calm.")
    model.answer(Call("look"))
    model.answer("Nobody there.")
    chat.send("again")
    chat.expect("✗ look: ")
    chat.expect("Nobody there.")
    port = url.split(":")[2].split("/")[0]
    restarted = subprocess.Popen(
        [*COMMAND, "run", "--http", f"127.0.0.1:{port}", str(harbour)], env=ENVIRONMENT, stdout=subprocess.PIPE
    )
    try:
        assert restarted.stdout is not None and restarted.stdout.readline()
        deadline = time.monotonic() + 40  # the next attempt to connect may be some seconds away
        for attempt in itertools.count():
            model.answer(Call("look"))
            model.answer(f"Done {attempt}.")
            chat.send("once more")
            if "← look: calm" in chat.expect(f"Done {attempt}."):
                break
            assert time.monotonic() < deadline, "the server did not come back"
            time.sleep(0.5)
    finally:
        restarted.terminate()
        restarted.communicate()


def test_a_form_of_a_server_is_filled_in(model: Endpoint, start_chat: Callable[..., ChatSession]) -> None:
    model.answer(Call("berth"))
    model.answer("Berth 4 it is.")
    chat = start_chat(model, "--approve", "never")
    chat.send("berth")
    chat.expect("harbour asks: Which berth?")
    chat.expect("number> ")
    chat.type("4")
    chat.expect("Berth 4 it is.")
    assert "berth" in model.last_texts and "4" in model.last_texts


def test_a_server_samples_the_model_after_the_user_approves(
    model: Endpoint, start_chat: Callable[..., ChatSession]
) -> None:
    model.answer(Call("poem"))
    model.answer("Waves.")
    model.answer("Nice poem.")
    chat = start_chat(model)
    chat.send("write")
    chat.expect("Run it?")
    chat.type("y")
    chat.expect("harbour wants to ask the model, for at most 50 tokens:")
    chat.expect("user: A poem about tides")
    chat.expect("Send it?")
    chat.type("e")
    chat.expect("Type the question in one line.")
    chat.type("A poem about Moons")
    chat.expect("answer: Waves.")
    chat.expect("Send it?")
    chat.type("y")
    chat.expect("Nice poem.")
    assert model.requests[1]["messages"] == [{"role": "user", "content": "A poem about Moons"}]
    assert "poem: Waves." in model.last_texts

    model.answer(Call("poem"))
    model.answer("No poem.")
    chat.send("again")
    chat.expect("Run it?")
    chat.type("y")
    chat.expect("Send it?")
    chat.type("n")
    chat.expect("No poem.")
    assert len(model.requests) == 5


def test_tab_completes_resources_prompts_and_commands(model: Endpoint, start_chat: Callable[..., ChatSession]) -> None:
    model.answer("High.")
    chat = start_chat(model)
    chat.expect(PROMPT)
    chat.terminal.press("see @tid")
    chat.expect("The tide now")  # the completion has the title
    chat.terminal.press("\t")
    chat.expect("tide://now")
    chat.terminal.press("\r")
    chat.expect("High.")
    assert "3 m high" in model.last_texts
    chat.expect(PROMPT)
    chat.terminal.press("/bri")
    chat.expect("Brief somebody on a vessel.")
    model.answer("She floats.")
    chat.terminal.press("\t vessel=Mary\r")
    chat.expect("She floats.")
    assert "Brief me on Mary." in model.last_texts


def test_a_prompt_is_sent_with_its_embedded_texts_and_what_is_left_out_is_shown(
    model: Endpoint, start_chat: Callable[..., ChatSession]
) -> None:
    model.answer("A hull.")
    chat = start_chat(model)
    chat.send("/album")
    chat.expect("Only the text of /album is sent: 1 message without text left out.")
    chat.expect("A hull.")
    assert "Describe it.\\n\\nIt is a red hull." in model.last_texts


def test_every_slash_command_prints_its_result(
    model: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    model.answer("High.")
    chat = start_chat(model)
    chat.send("/cost")
    chat.expect("No tokens yet")
    chat.send("@tide://now")
    chat.expect("High.")
    for line, expected in {
        "/model": "The model is openai/scripted-1, at 127.0.0.1:",
        "/model gpt-5": "write openai/gpt-5",
        "/model openai/scripted-2": "The model is openai/scripted-2",
        "/tools": "rise  Let the water rise.",
        "/tools of": "/tools of is not a setting: write /tools on or /tools off.",
        "/context yes": "/context yes is not a setting: write /context on or /context off.",
        "/tools off": "The model may not use",
        "/context": "@tide://now  harbour",
        "/context off": "and no others",
        "/cost": "100 tokens sent, 7 received",
        "/help": "/briefing vessel=…  Brief somebody on a vessel.",
        "/briefing": "/briefing needs vessel=TEXT",
        "/briefing ship=x": "ship=x is not an argument of /briefing, which takes vessel=TEXT",
        "/briefing vessel='x": "A quote is not closed",
        "/modle": "There is no command /modle. Did you mean /model?",
        "/clear": "The conversation is forgotten.",
    }.items():
        chat.send(line)
        chat.expect(expected)
    model.answer("New.")
    chat.send("hello")
    chat.expect("New.")
    assert model.requests[-1]["model"] == "scripted-2"
    assert "tools" not in model.requests[-1]
    assert "High." not in model.last_texts
    chat.send("/exit")
    assert chat.terminal.wait_for_exit() == 0
    assert "Unclosed" not in chat.terminal.output  # the client of the second model


def test_an_error_of_the_endpoint_leaves_the_chat_open(model: Endpoint, start_chat: Callable[..., ChatSession]) -> None:
    model.answer(Refusal(400, "nonsense"))
    model.answer("Better.")
    chat = start_chat(model)
    chat.send("unanswerable")
    chat.expect("HTTP 400: nonsense")
    chat.send("second")
    chat.expect("Better.")
    assert "unanswerable" not in model.last_texts  # a question without an answer is not kept


def test_control_characters_of_servers_and_models_are_escaped(
    model: Endpoint, start_chat: Callable[..., ChatSession], tmp_path: Path
) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    evil = "\x1b]0;owned\x07\x1b[2J\u202eevil"
    model.answer(evil, Call("rise"))
    model.answer(evil, Call(evil, {evil: evil}, id="call-2"))
    model.answer("The end.")
    chat = start_chat(model, "--approve", "never", targets=("hostile.py",))
    chat.expect(PROMPT)
    chat.terminal.press("@tide")
    chat.expect("owned")
    chat.terminal.press("://now\r")
    chat.expect("The end.")
    for line, expected in {"/tools": "rise  ", "/help": "/briefing", "/context": "@tide"}.items():
        chat.send(line)
        chat.expect(expected)
    model.answer("Over.")
    chat.send("/briefing")
    chat.expect("Over.")
    chat.send("/exit")
    chat.terminal.wait_for_exit()
    for raw in ("\x1b]0;owned", "\x07", "\u202e", "\x1b[2J\\"):
        assert raw not in chat.terminal.output
    assert "\\x1b]0;owned\\x07" in chat.terminal.output
    result = next(m["content"] for m in model.requests[1]["messages"] if m["role"] == "tool")
    assert len(result) < 200_000


# One question, in pipes


def test_a_prompt_is_answered_once(each_api: Endpoint, harbour: Path, tmp_path: Path) -> None:
    each_api.answer("It is ", "3 m.")
    code, out, errors = run_chat(each_api, tmp_path, "harbour.py", "-p", "How high is @tide://now?")
    assert (code, out) == (0, "It is 3 m.\n")
    assert "@tide://now  harbour" in errors
    assert "3 m high" in each_api.last_texts


def test_without_a_terminal_a_tool_needs_an_option(model: Endpoint, harbour: Path, tmp_path: Path) -> None:
    def run_with_approval(*args: str) -> tuple[str, str]:
        model.answer(Call("rise", {"by": 1}), Call("look", id="call-2"))
        model.answer("Done.")
        code, out, errors = run_chat(model, tmp_path, "-p", "rise", *args, "harbour.py")
        assert code == 0 and out.endswith("Done.\n")
        return (tmp_path / "height").read_text(), errors

    height, errors = run_with_approval()
    assert height == "3" and "rise does not run: there is no terminal" in errors and "--approve" in errors
    height, errors = run_with_approval("--approve", "read-only")
    assert height == "3" and "← look: calm" in errors and "rise does not run" in errors
    height, errors = run_with_approval("--approve", "never")
    assert height == "4" and "← rise: 4 m" in errors


def test_a_conversation_continues(each_api: Endpoint, tmp_path: Path) -> None:
    each_api.answer("Hello Ada.")
    each_api.answer("Ada.")
    each_api.answer("Who?")
    run_chat(each_api, tmp_path, "-p", "I am Ada.")
    assert run_chat(each_api, tmp_path, "-c", "-p", "Who am I?")[1] == "Ada.\n"
    assert "I am Ada." in each_api.last_texts and "Hello Ada." in each_api.last_texts
    assert len(stored_conversation(tmp_path)["messages"]) == 4
    run_chat(each_api, tmp_path, "--no-save", "-p", "Who am I?")
    assert "I am Ada." not in each_api.last_texts
    assert len(stored_conversation(tmp_path)["messages"]) == 4


def test_without_a_home_folder_a_question_is_answered_and_not_stored(model: Endpoint, tmp_path: Path) -> None:
    """A bug: without HOME, and for a user who is not in the list of users, the error was a RuntimeError."""
    no_home = {"HOME": "relative", "XDG_STATE_HOME": "relative"}
    for words in ((), ("--no-save",)):
        model.answer("Hello Ada.")
        code, out, error = run_chat(model, tmp_path, *words, "-p", "I am Ada.", env=no_home)
        assert (code, out) == (0, "Hello Ada.\n")
        assert ("there is no home folder: set HOME or XDG_STATE_HOME" in error) is (not words)
    code, _, error = run_chat(model, tmp_path, "-c", "-p", "Who?", env=no_home)
    assert code == 1 and "there is no home folder: set HOME or XDG_STATE_HOME" in error


def test_a_conversation_changes_its_model(tmp_path: Path, harbour: Path) -> None:
    """Messages, tool calls and results of one API are sent to the others."""
    for number, api in enumerate(("openai", "anthropic", "ollama", "openai")):
        with endpoint(api) as model:
            model.answer(Call("look", id=f"call-{number}"))
            model.answer(f"Calm for {api}.")
            code, out, _ = run_chat(model, tmp_path, "-c", "--approve", "never", "-p", f"look {number}", "harbour.py")
            assert code == 0 and out.endswith(f"Calm for {api}.\n")
            assert all(f"look {earlier}" in model.last_texts for earlier in range(number + 1))


def test_json_is_one_object(each_api: Endpoint, harbour: Path, tmp_path: Path) -> None:
    each_api.answer("Hm. ", Call("look"))
    each_api.answer("Calm.\x1b[31m")
    code, out, errors = run_chat(
        each_api, tmp_path, "harbour.py", "--approve", "never", "--json", "-p", "look at @tide://now"
    )
    assert (code, errors) == (0, "")
    assert "\x1b" not in out and out.count("\n") == 1
    answer = json.loads(out)
    assert answer["answer"] == "Hm. \n\nCalm.\x1b[31m"
    assert answer["model"] == each_api.model
    assert answer["usage"] == {"inputTokens": 200, "outputTokens": 14, "cachedTokens": 0}
    assert answer["calls"] == [{"name": "look", "arguments": {}, "isError": False}]
    assert answer["resources"][0]["uri"] == "tide://now" and answer["stopReason"] == "endTurn"


def test_piped_text_is_part_of_the_question(model: Endpoint, tmp_path: Path) -> None:
    model.answer("A.")
    model.answer("B.")
    assert run_chat(model, tmp_path, text="+ one line\n")[1] == "A.\n"
    assert model.requests[0]["messages"][-1]["content"] == "+ one line\n"
    assert run_chat(model, tmp_path, "-p", "Review this", text="+ one line\n")[1] == "B.\n"
    assert model.requests[1]["messages"][-1]["content"] == "Review this\n\n+ one line\n"


def test_a_call_that_the_token_limit_cut_is_not_run_and_the_option_is_named(
    model: Endpoint, harbour: Path, tmp_path: Path
) -> None:
    model.answer(Call("look", text='{"place": "pie'), TokenLimit())
    model.answer("Fine.")
    code, out, errors = run_chat(model, tmp_path, "harbour.py", "--approve", "never", "-p", "look")
    assert (code, out) == (0, "Fine.\n")
    assert "--max-tokens" in errors and "cut by its token limit" in errors
    assert "cut by its token limit" in model.last_texts


def test_tool_calls_stop_after_max_rounds(model: Endpoint, harbour: Path, tmp_path: Path) -> None:
    for number in range(3):
        model.answer(Call("look", id=f"call-{number}"))
    code, _, errors = run_chat(model, tmp_path, "harbour.py", "--approve", "never", "--max-rounds", "2", "-p", "look")
    assert code == 1 and "Stopped after 2 rounds" in errors and len(model.requests) == 2


def test_no_tool_runs_without_tools(model: Endpoint, harbour: Path, tmp_path: Path) -> None:
    model.answer(Call("rise", {"by": 1}))
    model.answer("I cannot.")
    code, out, _ = run_chat(model, tmp_path, "--no-tools", "--approve", "never", "-p", "Rise!", "harbour.py")
    assert (code, out) == (0, "I cannot.\n")
    assert "There is no tool 'rise' now" in model.last_texts
    assert (tmp_path / "height").read_text() == "3"


def test_malformed_arguments_are_reported_to_the_model(model: Endpoint, harbour: Path, tmp_path: Path) -> None:
    model.answer(Call("rise", text="{by: 2"))
    model.answer("Sorry.")
    assert run_chat(model, tmp_path, "harbour.py", "--approve", "never", "-p", "rise")[1] == "Sorry.\n"
    assert "not a JSON object" in model.last_texts
    assert (tmp_path / "height").read_text() == "3"


@pytest.mark.parametrize(
    ("args", "env", "code", "line"),
    [
        (("-p", "hi"), {}, 2, "wharfinger: There is no model to ask: set WHARFINGER_MODEL"),
        (("-m", "gpt-5", "-p", "hi"), {}, 2, "write openai/gpt-5"),
        (("-m", "anthropic/x", "-p", "hi"), {}, 2, "set ANTHROPIC_API_KEY"),
        (("-m", "ollama/x", "-p", "hi"), {"OLLAMA_HOST": "127.0.0.1:9"}, 3, "Start it with `ollama serve`"),
        (("-m", "ollama/x"), {}, 2, "There is no terminal to chat at"),
        (("-m", "ollama/x", "--json"), {}, 2, "--json answers one question"),
        (("-m", "ollama/x", "-p", " "), {}, 2, "-p is empty"),
        (("-m", "ollama/x", "-p", "hi", "nowhere"), {}, 2, "no folder, file or configured server has this name"),
        (("-m", "ollama/x", "-p", "hi", "--approve", "nevr"), {}, 2, "Did you mean 'never'?"),
        (("-m", "ollama/x", "-p", "hi", "--trust", "a", "."), {}, 2, "--trust a: the servers are"),
        (("-m", "ollama/x", "-p", "hi", "--header", "a: b", "."), {}, 2, "exactly one URL"),
        (("-m", "ollama/x", "-p", "hi", "--", sys.executable, "-c", "1/0"), {}, 3, "python"),
    ],
)
def test_a_usage_error_is_one_line_with_the_remedy(
    tmp_path: Path, args: tuple[str, ...], env: dict[str, str], code: int, line: str
) -> None:
    exit_code, out, errors = run_chat(None, tmp_path, *args, env=env)
    assert (exit_code, out) == (code, "")
    assert line in errors
    assert "Traceback (most recent call last)" not in errors or "ended with exit code" in errors


def test_the_extra_is_named_if_it_is_missing(terminal: Start, tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "prompt_toolkit.py").write_text("raise ImportError('absent')\n")
    chat = terminal("chat", "-m", "ollama/x", env={"PYTHONPATH": python_path(tmp_path / "absent")})
    assert chat.wait_for_exit() == 1
    assert "needs the extra 'chat'. Run pip install 'wharfinger[chat]'" in chat.output


def test_one_question_needs_no_extra(model: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "prompt_toolkit.py").write_text("raise ImportError('absent')\n")
    model.answer("Hello.")
    assert run_chat(model, tmp_path, "-p", "hi", env={"PYTHONPATH": python_path(tmp_path)})[:2] == (0, "Hello.\n")


@pytest.mark.skipif(not os.environ.get("WHARFINGER_MODEL"), reason="WHARFINGER_MODEL names no model to ask")
def test_a_real_model_reads_and_calls(harbour: Path, tmp_path: Path) -> None:
    """The model that WHARFINGER_MODEL names reads a mentioned resource and calls a tool."""
    result = subprocess.run(
        [*COMMAND, "chat", "harbour.py", "--approve", "never", "--json", "-p",
         "The tide is in @tide://now. Call the tool rise with by=2 once, then say how high the water is now."],
        cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (tmp_path / "height").read_text() == "5"
    assert "5" in answer["answer"] and answer["usage"]["inputTokens"] > 0


def python_path(first: Path) -> str:
    """Return the module path with this folder first."""
    return os.pathsep.join(filter(None, (str(first), os.environ.get("PYTHONPATH"))))
