// The client of the TypeScript SDK 2.x.
import { runCommands, target } from './client.mjs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const settings = target.mode === 'stateless' ? { versionNegotiation: { mode: 'auto' } } : {};
const client = new Client({ name: 'bench', version: '1.0' }, settings);
await client.connect(target.command
    ? new StdioClientTransport({ command: target.command[0], args: target.command.slice(1) })
    : new StreamableHTTPClientTransport(new URL(target.url)));
await runCommands(client);
