// A server of the TypeScript SDK 2.x with the features of common.py. Its HTTP handler serves one era: `http PORT REVISION`.
import { BLOB, BLOB_URI, GROWN_URI, ITEMS, ITEM_TEMPLATE, TEXT, TEXT_URI, transportAndPort, item } from './common.mjs';
import { McpServer, ResourceTemplate, createMcpHandler } from '@modelcontextprotocol/server';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import * as z from 'zod';

const [transport, port] = transportAndPort();
let notifier = null;            // notifies all listeners of the stateless HTTP handler
let grownForAll = false;

function build() {
    const server = new McpServer({ name: 'ts2', version: '1' }, { capabilities: { resources: { subscribe: true, listChanged: true } } });
    const watched = new Set();
    const text = (uri, mimeType, text) => ({ contents: [{ uri: uri.href, mimeType, text }] });
    const addGrown = () => server.registerResource('grown', GROWN_URI, { mimeType: 'text/plain' }, async uri => text(uri, 'text/plain', 'grown'));
    server.registerResource('text', TEXT_URI, { mimeType: 'text/plain' }, async uri => text(uri, 'text/plain', TEXT));
    server.registerResource('blob', BLOB_URI, { mimeType: 'application/octet-stream' }, async uri => (
        { contents: [{ uri: uri.href, mimeType: 'application/octet-stream', blob: BLOB.toString('base64') }] }));
    const complete = { id: value => ITEMS.filter(name => name.startsWith(value)) };
    server.registerResource('item', new ResourceTemplate(ITEM_TEMPLATE, { list: undefined, complete }), { mimeType: 'application/json' },
        async (uri, { id }) => text(uri, 'application/json', item(id)));
    if (grownForAll) addGrown();
    server.registerTool('add', { inputSchema: z.object({ a: z.number().int(), b: z.number().int() }), outputSchema: z.object({ result: z.number().int() }) },
        async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }], structuredContent: { result: a + b } }));
    server.registerTool('fails', {}, async () => { throw new Error('on purpose'); });
    server.registerTool('touch', { inputSchema: z.object({ uri: z.string() }) }, async ({ uri }) => {
        if (notifier) notifier.resourceUpdated(uri);
        else await server.server.sendResourceUpdated({ uri });
        return { content: [{ type: 'text', text: 'touched' }] };
    });
    server.registerTool('grow', {}, async () => {
        if (notifier) { grownForAll = true; notifier.resourcesChanged(); }
        else addGrown();
        return { content: [{ type: 'text', text: 'grown' }] };
    });
    server.registerPrompt('greet', { argsSchema: z.object({ name: z.string() }) }, async ({ name }) => (
        { messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${name}!` } }] }));
    server.server.setRequestHandler('resources/subscribe', async request => { watched.add(request.params.uri); return {}; });
    server.server.setRequestHandler('resources/unsubscribe', async request => { watched.delete(request.params.uri); return {}; });
    return server;
}

async function inSessions() {
    const sessions = new Map();
    return async (request, response) => {
        const id = request.headers['mcp-session-id'];
        let session = sessions.get(id);
        if (id && !session) return response.writeHead(404).end();
        if (!session) {
            session = new NodeStreamableHTTPServerTransport({
                sessionIdGenerator: () => randomUUID(),
                onsessioninitialized: fresh => { sessions.set(fresh, session); },
                onsessionclosed: ended => { sessions.delete(ended); },
            });
            await build().connect(session);
        }
        return session.handleRequest(request, response);
    };
}

function stateless() {
    const handler = createMcpHandler(build);
    notifier = handler.notify;
    return toNodeHandler(handler);
}

if (transport === 'stdio') {
    serveStdio(build);
} else {
    const handle = process.argv[4] === '2026-07-28' ? stateless() : await inSessions();
    createServer(handle).listen(port, '127.0.0.1');
}
