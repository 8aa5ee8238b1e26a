// watched.py with the TypeScript SDK 2.x: both eras on one port, which it prints first.
import * as readline from 'node:readline';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';

const URI = 'bench://watched', BEAT = 1;
const text = async uri => ({ contents: [{ uri: uri.href, text: 'text' }] });

function makeServer() {
    const server = new McpServer({ name: 'watched', version: '0' }, { capabilities: { resources: { subscribe: true } } });
    server.registerResource('watched', URI, {}, text);
    server.server.setRequestHandler('resources/subscribe', async () => ({}));
    return server;
}

const stateless = createMcpHandler(makeServer, { maxSubscriptions: 20_000 });
const listen = toNodeHandler(stateless);
const sessions = new Map();

async function handle(req, res) {
    if (req.headers['mcp-protocol-version'] === '2026-07-28') return listen(req, res);
    let session = sessions.get(req.headers['mcp-session-id']);
    if (!session) {
        const server = makeServer();
        const transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: () => randomUUID(),
            onsessioninitialized: id => { sessions.set(id, session); },
        });
        session = { server, transport };
        await server.connect(transport);
    }
    await session.transport.handleRequest(req, res);
}

let longest = 0, due = 0;
function beat() {
    const now = performance.now();
    if (due) longest = Math.max(longest, now - due);
    due = now + BEAT;
    setTimeout(beat, BEAT);
}

function change() {
    console.log(String(BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n));
    stateless.notify.resourceUpdated(URI);
    for (const { server } of sessions.values()) server.server.sendResourceUpdated({ uri: URI }).catch(() => {});
}

const listener = createServer((req, res) => {
    handle(req, res).catch(error => { console.error(error); if (!res.headersSent) res.writeHead(500).end(); });
});
listener.listen(0, '127.0.0.1', () => {
    console.log(listener.address().port);
    beat();
    readline.createInterface({ input: process.stdin }).on('line', line => {
        if (line.trim() === 'change') return change();
        console.log(longest);
        longest = 0;
    });
});
