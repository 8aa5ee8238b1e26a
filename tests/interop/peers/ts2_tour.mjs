// A client of the TypeScript SDK 2.x that makes the calls of client_tour.mjs, in either era.
import { readInput } from './common.mjs';
import * as tour from './client_tour.mjs';
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const input = readInput();
const stateless = input.revision === '2026-07-28';
const options = { capabilities: tour.CAPABILITIES, ...(stateless ? { versionNegotiation: { mode: 'auto' } } : {}) };
const client = new Client({ name: 'ts2', version: '1.0' }, options);
client.setNotificationHandler('notifications/message', tour.log);
client.setRequestHandler('elicitation/create', tour.elicit);
client.setRequestHandler('sampling/createMessage', tour.sample);
client.setRequestHandler('roots/list', tour.roots);
const transport = input.command
    ? new StdioClientTransport({ command: input.command[0], args: input.command.slice(1) })
    : input.sse ? new SSEClientTransport(new URL(input.sse)) : new StreamableHTTPClientTransport(new URL(input.url));
await client.connect(transport);
const seen = { revision: client.getNegotiatedProtocolVersion() };
const call = (params, options) => client.callTool(stateless ? { ...params, _meta: { 'io.modelcontextprotocol/logLevel': 'info' } } : params, options);
await tour.tour(client, input, seen, call, async level => { if (!stateless) await client.setLoggingLevel(level); });
