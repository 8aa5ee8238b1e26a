// A client of the TypeScript SDK 1.x (handshake era): visits a server and prints what it saw.
import { change, heard, promised, tour, visit } from './common.mjs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const asked = visit();
const client = new Client({ name: 'ts1', version: '1.0' });
const updated = promised('update'), grown = promised('list change');
client.setNotificationHandler(ResourceUpdatedNotificationSchema, message => updated.keep(message.params.uri));
client.setNotificationHandler(ResourceListChangedNotificationSchema, () => grown.keep(true));
const transport = asked.command
    ? new StdioClientTransport({ command: asked.command[0], args: asked.command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(asked.url));
await client.connect(transport);
const seen = { revision: transport.protocolVersion ?? '2025-11-25', server: client.getServerVersion()?.name };
await tour(client, seen, asked, async () => {
    await client.subscribeResource({ uri: asked.watched });
    [seen.updated, seen.updated_after] = await heard(change(asked.change, call => client.callTool(call)), updated);
    [seen.list_changed, seen.list_changed_after] = await heard(change(asked.grow, call => client.callTool(call)), grown);
    await client.unsubscribeResource({ uri: asked.watched });
    await client.ping();
}, async () => {
    if (!asked.command) await transport.terminateSession();
});
