// A client of the TypeScript SDK 2.x (both eras): visits a server and prints what it saw.
import { change, heard, promised, tour, visit } from './common.mjs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const asked = visit();
const stateless = asked.revision === '2026-07-28';
const client = new Client({ name: 'ts2', version: '1.0' }, stateless ? { versionNegotiation: { mode: 'auto' } } : {});
const updated = promised('update'), grown = promised('list change');
client.setNotificationHandler('notifications/resources/updated', message => updated.keep(message.params.uri));
client.setNotificationHandler('notifications/resources/list_changed', () => grown.keep(true));
const transport = asked.command
    ? new StdioClientTransport({ command: asked.command[0], args: asked.command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(asked.url));
await client.connect(transport);
// Asked without a cursor, this client fetches every page and shows one.
const seen = { pages_are_joined: true, revision: client.getNegotiatedProtocolVersion(), server: client.getServerVersion()?.name };
await tour(client, seen, asked, async () => {
    const listening = stateless
        ? await client.listen({ resourceSubscriptions: [asked.watched], resourcesListChanged: true })
        : await client.subscribeResource({ uri: asked.watched });
    [seen.updated, seen.updated_after] = await heard(change(asked.change, call => client.callTool(call)), updated);
    [seen.list_changed, seen.list_changed_after] = await heard(change(asked.grow, call => client.callTool(call)), grown);
    if (stateless) await listening.close();
    else await client.unsubscribeResource({ uri: asked.watched });
}, async () => {
    if (!stateless && !asked.command) await transport.terminateSession();
});
