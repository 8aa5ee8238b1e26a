// A client of the TypeScript SDK 2.x (both eras). It visits a server and prints the results.
import { applyChange, deferred, tour, readInput } from './common.mjs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const input = readInput();
const stateless = input.revision === '2026-07-28';
const client = new Client({ name: 'ts2', version: '1.0' }, stateless ? { versionNegotiation: { mode: 'auto' } } : {});
const updated = deferred('update'), grown = deferred('list change');
client.setNotificationHandler('notifications/resources/updated', message => updated.resolve(message.params.uri));
client.setNotificationHandler('notifications/resources/list_changed', () => grown.resolve(true));
const transport = input.command
    ? new StdioClientTransport({ command: input.command[0], args: input.command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(input.url));
await client.connect(transport);
// Without a cursor, this client fetches every page and returns them as one.
const seen = { pages_are_joined: true, revision: client.getNegotiatedProtocolVersion(), server: client.getServerVersion()?.name };
await tour(client, seen, input, async () => {
    const listening = stateless
        ? await client.listen({ resourceSubscriptions: [input.watched], resourcesListChanged: true })
        : await client.subscribeResource({ uri: input.watched });
    await applyChange(input.change, call => client.callTool(call));
    seen.updated = await updated.wait();
    await applyChange(input.grow, call => client.callTool(call));
    seen.list_changed = await grown.wait();
    if (stateless) await listening.close();
    else await client.unsubscribeResource({ uri: input.watched });
}, async () => {
    if (!stateless && !input.command) await transport.terminateSession();
});
