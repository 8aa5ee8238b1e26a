// A client of the TypeScript SDK 1.x (handshake era). It visits a server and prints the results.
import { applyChange, deferred, tour, readInput } from './common.mjs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const input = readInput();
const client = new Client({ name: 'ts1', version: '1.0' });
const updated = deferred('update'), grown = deferred('list change');
client.setNotificationHandler(ResourceUpdatedNotificationSchema, message => updated.resolve(message.params.uri));
client.setNotificationHandler(ResourceListChangedNotificationSchema, () => grown.resolve(true));
const transport = input.command
    ? new StdioClientTransport({ command: input.command[0], args: input.command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(input.url));
await client.connect(transport);
const seen = { revision: transport.protocolVersion ?? '2025-11-25', server: client.getServerVersion()?.name };
await tour(client, seen, input, async () => {
    await client.subscribeResource({ uri: input.watched });
    await applyChange(input.change, call => client.callTool(call));
    seen.updated = await updated.wait();
    await applyChange(input.grow, call => client.callTool(call));
    seen.list_changed = await grown.wait();
    await client.unsubscribeResource({ uri: input.watched });
    await client.ping();
}, async () => {
    if (!input.command) await transport.terminateSession();
});
