// TypeScript SDK 1.x (@modelcontextprotocol/sdk), on bare node:http.
import * as spec from './spec.mjs';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';

const makeServer = () => spec.register(new McpServer({ name: spec.NAME, version: spec.VERSION }), ResourceTemplate);

if (spec.args.transport === 'stdio') {
    const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
    await makeServer().connect(new StdioServerTransport());
} else {
    const { StreamableHTTPServerTransport } = await import('@modelcontextprotocol/sdk/server/streamableHttp.js');
    await spec.serveSessions(makeServer, StreamableHTTPServerTransport);
}
