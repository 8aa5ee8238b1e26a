"""A mailbox as live resources, `mail://NAME/KEY`: a source that the contract suite tests."""

import mailbox
from pathlib import Path

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Source, version_of
from wharfinger.sources.polling import Polling


class Mail(Source):
    def __init__(self, folder):
        self.folder, self.name, self.location = folder, Path(folder).name, str(folder)
        self.uri = f"mail://{self.name}"
        self.templates = (t.ResourceTemplate(uri_template=self.uri + "/{key}", name="message"),)
        self.polling = Polling("mail", lambda uri: version_of(self.find(uri)[0]) if uri else self.keys())
        self.watch, self.unwatch = self.polling.watch, self.polling.unwatch

    def keys(self):  # a Maildir object is for one thread, so each call opens its own
        return sorted(mailbox.Maildir(self.folder, create=False).keys())

    def matches(self, uri):
        return f"{uri}/".startswith(self.uri + "/")

    def find(self, uri):  # the resource with its version, and its text
        if uri == self.uri:
            meta = {VERSION: f"{len(keys := self.keys())} {keys[-1:]}"}
            return t.Resource(uri=uri, name=self.name, mime_type=DIRECTORY, meta=meta), "\n".join(keys)
        try:
            message = mailbox.Maildir(self.folder, create=False)[uri.removeprefix(self.uri + "/")]
        except (KeyError, OSError, ValueError):
            raise ResourceNotFound(uri) from None
        name, flags = " ".join(str(message["subject"]).split()), message.get_flags()
        meta = {VERSION: f"{message.get_date():.0f} {flags}"}
        return t.Resource(uri=uri, name=name, mime_type="text/plain", meta=meta), f"Flags: {flags}\n{message}"

    def stat(self, uri):  # a watch begins here: what changes from now on is reported
        self.polling.record(uri, version_of(self.find(uri)[0]))
        return self.find(uri)[0]

    def read(self, uri):
        resource, text = self.find(uri)
        content = t.ResourceContents(uri=uri, mime_type="text/plain", text=text, meta=resource.meta)
        return t.ReadResourceResult(contents=[content])

    def children(self, uri, after=None, limit=1000):
        if uri != self.uri:
            raise ResourceNotFound(uri)
        if after is not None and not after.startswith("> "):
            raise InvalidArgument("This cursor is not valid here.")
        keys = [key for key in self.keys() if f"> {key}" > (after or "")]
        return [self.find(f"{uri}/{key}")[0] for key in keys[:limit]], f"> {keys[limit - 1]}" if keys[limit:] else None

    def page(self, after, limit):
        return self.children(self.uri, after, limit)

    def complete(self, template, argument, value, context):
        return [key for key in self.keys() if argument == "key" and key.startswith(value)][:100]
