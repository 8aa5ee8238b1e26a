// The same as spec.py, for the Node peers.
import * as z from 'zod';

export const NAME = 'bench', VERSION = '1.0';
export const STATIC_URI = 'bench://static', ITEM_TEMPLATE = 'bench://item/{id}';
export const BLOB_URI = 'bench://blob/1', BIG_BLOB_URI = 'bench://blob/50';
export const TEXT = 'text/plain', JSON_ = 'application/json', BINARY = 'application/octet-stream';
export const STATIC_TEXT = 'The quick brown fox jumps over the lazy dog. '.repeat(40).slice(0, 1024);
const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
export const BLOB = Buffer.alloc(1 << 20, bytes);
let big;    // made at its first read: idle memory is measured without it
export const bigBlob = () => big ??= Buffer.alloc(50 << 20, bytes);
export const ENTRIES = Array.from({ length: 997 }, (_, n) => ({ uri: `bench://entry/${n}`, name: `entry ${n}`, mimeType: TEXT }));
export const itemText = id => JSON.stringify({ id, name: `item ${id}`, price: 12.5, tags: ['a', 'b'], stock: 3 });

const [, , transport = 'stdio', port = '0', mode = 'session'] = process.argv;
export const args = { transport, port: Number(port), mode };

// Registers the same features with the server of either SDK. `Template` is the SDK's own class.
export function register(server, Template) {
    const numbers = z.object({ a: z.number().int(), b: z.number().int() }), sum = z.object({ result: z.number().int() });
    server.registerTool('add', { inputSchema: numbers, outputSchema: sum }, async ({ a, b }) => (
        { content: [{ type: 'text', text: String(a + b) }], structuredContent: { result: a + b } }));
    const text = (uri, mimeType, text) => ({ contents: [{ uri: uri.href, mimeType, text }] });
    const blob = (uri, data) => ({ contents: [{ uri: uri.href, mimeType: BINARY, blob: data.toString('base64') }] });
    server.registerResource('static', STATIC_URI, { mimeType: TEXT }, async uri => text(uri, TEXT, STATIC_TEXT));
    server.registerResource('blob', BLOB_URI, { mimeType: BINARY }, async uri => blob(uri, BLOB));
    server.registerResource('big blob', BIG_BLOB_URI, { mimeType: BINARY }, async uri => blob(uri, bigBlob()));
    server.registerResource('item', new Template(ITEM_TEMPLATE, { list: undefined }), { mimeType: JSON_ },
        async (uri, { id }) => text(uri, JSON_, itemText(id)));
    // One server object per session or request is these SDKs' model, so the entries come from a template's list:
    // 997 registrations per request would measure something else.
    server.registerResource('entry', new Template('bench://entry/{n}', { list: async () => ({ resources: ENTRIES }) }),
        { mimeType: TEXT }, async (uri, { n }) => text(uri, TEXT, `entry ${n}`));
    return server;
}

// Streamable HTTP of the handshake era on node:http, one transport per session.
export async function serveSessions(makeServer, Transport) {
    const { createServer } = await import('node:http');
    const { randomUUID } = await import('node:crypto');
    const sessions = new Map();
    const handle = async (req, res) => {
        const id = req.headers['mcp-session-id'];
        let transport = sessions.get(id);
        if (id && !transport) return res.writeHead(404).end();
        if (!transport) {
            transport = new Transport({
                sessionIdGenerator: () => randomUUID(),
                onsessioninitialized: sid => { sessions.set(sid, transport); },
                onsessionclosed: sid => { sessions.delete(sid); },
            });
            await makeServer().connect(transport);
        }
        await transport.handleRequest(req, res);
    };
    createServer((req, res) => {
        handle(req, res).catch(error => { console.error(error); if (!res.headersSent) res.writeHead(500).end(); });
    }).listen(args.port, '127.0.0.1');
}
