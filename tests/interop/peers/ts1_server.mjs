// A server of the TypeScript SDK 1.x (handshake era) with the features of common.py.
import { BLOB, BLOB_URI, GROWN_URI, ITEMS, ITEM_TEMPLATE, TEXT, TEXT_URI, transportAndPort, item } from './common.mjs';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import * as z from 'zod';

const [transport, port] = transportAndPort();

function build() {
    const server = new McpServer({ name: 'ts1', version: '1' }, { capabilities: { resources: { subscribe: true, listChanged: true } } });
    const watched = new Set();
    const text = (uri, mimeType, text) => ({ contents: [{ uri: uri.href, mimeType, text }] });
    server.registerResource('text', TEXT_URI, { mimeType: 'text/plain' }, async uri => text(uri, 'text/plain', TEXT));
    server.registerResource('blob', BLOB_URI, { mimeType: 'application/octet-stream' }, async uri => (
        { contents: [{ uri: uri.href, mimeType: 'application/octet-stream', blob: BLOB.toString('base64') }] }));
    const complete = { id: value => ITEMS.filter(name => name.startsWith(value)) };
    server.registerResource('item', new ResourceTemplate(ITEM_TEMPLATE, { list: undefined, complete }), { mimeType: 'application/json' },
        async (uri, { id }) => text(uri, 'application/json', item(id)));
    server.registerTool('add', { inputSchema: { a: z.number().int(), b: z.number().int() }, outputSchema: { result: z.number().int() } },
        async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }], structuredContent: { result: a + b } }));
    server.registerTool('fails', {}, async () => { throw new Error('on purpose'); });
    server.registerTool('touch', { inputSchema: { uri: z.string() } }, async ({ uri }) => {
        if (watched.has(uri)) await server.server.sendResourceUpdated({ uri });
        return { content: [{ type: 'text', text: 'touched' }] };
    });
    server.registerTool('grow', {}, async () => {
        server.registerResource('grown', GROWN_URI, { mimeType: 'text/plain' }, async uri => text(uri, 'text/plain', 'grown'));
        return { content: [{ type: 'text', text: 'grown' }] };
    });
    server.registerPrompt('greet', { argsSchema: { name: z.string() } }, async ({ name }) => (
        { messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${name}!` } }] }));
    server.server.setRequestHandler(SubscribeRequestSchema, async request => { watched.add(request.params.uri); return {}; });
    server.server.setRequestHandler(UnsubscribeRequestSchema, async request => { watched.delete(request.params.uri); return {}; });
    return server;
}

if (transport === 'stdio') {
    await build().connect(new StdioServerTransport());
} else {
    const sessions = new Map();
    createServer(async (request, response) => {
        const id = request.headers['mcp-session-id'];
        let session = sessions.get(id);
        if (id && !session) return response.writeHead(404).end();
        if (!session) {
            session = new StreamableHTTPServerTransport({
                sessionIdGenerator: () => randomUUID(),
                onsessioninitialized: fresh => { sessions.set(fresh, session); },
                onsessionclosed: ended => { sessions.delete(ended); },
            });
            await build().connect(session);
        }
        await session.handleRequest(request, response);
    }).listen(port, '127.0.0.1');
}
