// The client of the TypeScript SDK 1.x.
import { runCommands, target } from './client.mjs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const client = new Client({ name: 'bench', version: '1.0' });
client.v1 = true;
await client.connect(target.command
    ? new StdioClientTransport({ command: target.command[0], args: target.command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(target.url)));
await runCommands(client);
