// TypeScript SDK 2.x (@modelcontextprotocol/server and /node), on bare node:http with its Host and Origin checks.
import * as spec from './spec.mjs';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/server';

const makeServer = () => spec.register(new McpServer({ name: spec.NAME, version: spec.VERSION }), ResourceTemplate);

if (spec.args.transport === 'stdio') {
    const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
    serveStdio(makeServer);
} else {
    const node = await import('@modelcontextprotocol/node');
    if (spec.args.mode === 'session') {
        await spec.serveSessions(makeServer, node.NodeStreamableHTTPServerTransport);
    } else {
        const { createServer } = await import('node:http');
        const { createMcpHandler } = await import('@modelcontextprotocol/server');
        const hostOk = node.localhostHostValidation(), originOk = node.localhostOriginValidation();
        const handle = node.toNodeHandler(createMcpHandler(makeServer));
        createServer((req, res) => {
            if (!hostOk(req, res) || !originOk(req, res)) return;
            handle(req, res).catch(error => { console.error(error); if (!res.headersSent) res.writeHead(500).end(); });
        }).listen(spec.args.port, '127.0.0.1');
    }
}
