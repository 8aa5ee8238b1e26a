// A client of the TypeScript SDK 1.x that makes the calls of client_tour.mjs.
import { readInput } from './common.mjs';
import * as tour from './client_tour.mjs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as types from '@modelcontextprotocol/sdk/types.js';

const input = readInput();
const client = new Client({ name: 'ts1', version: '1.0' }, { capabilities: tour.CAPABILITIES });
client.setNotificationHandler(types.LoggingMessageNotificationSchema, tour.log);
client.setRequestHandler(types.ElicitRequestSchema, tour.elicit);
client.setRequestHandler(types.CreateMessageRequestSchema, tour.sample);
client.setRequestHandler(types.ListRootsRequestSchema, tour.roots);
const transport = input.command
    ? new StdioClientTransport({ command: input.command[0], args: input.command.slice(1) })
    : input.sse ? new SSEClientTransport(new URL(input.sse)) : new StreamableHTTPClientTransport(new URL(input.url));
await client.connect(transport);
const seen = { revision: transport.protocolVersion ?? '2025-11-25' };
const call = (params, options) => client.callTool(params, undefined, options);
await tour.tour(client, input, seen, call, level => client.setLoggingLevel(level));
