// A client of the TypeScript SDK 2.x. It reads every kind of source, directly and by tools, and prints the results.
import { report, sha256, readInput } from './common.mjs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const input = readInput();
const stateless = input.revision === '2026-07-28';
const client = new Client({ name: 'ts2', version: '1.0' }, stateless ? { versionNegotiation: { mode: 'auto' } } : {});
await client.connect(new StreamableHTTPClientTransport(new URL(input.url)));

const contentSummary = ({ blob, ...content }) => (blob === undefined ? content : { ...content, sha256: sha256(blob) });
const block = content => (content.type === 'resource_link' ? { type: content.type, uri: content.uri } : { type: content.type });

const seen = { revision: client.getNegotiatedProtocolVersion(), reads: {}, tool_reads: {}, searches: {} };
seen.uris = (await client.listResources()).resources.map(resource => resource.uri);  // this client joins the pages
seen.templates = (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate);
for (const uri of input.reads) {
    seen.reads[uri] = (await client.readResource({ uri })).contents.map(contentSummary);
    seen.tool_reads[uri] = (await client.callTool({ name: 'read_resource', arguments: { uri } })).content.map(block);
}
for (const query of input.searches) {
    const found = await client.callTool({ name: 'search', arguments: { query } });
    const ids = found.structuredContent.results.map(result => result.id);
    seen.searches[query] = { ids, blocks: found.content.map(block) };
}
await client.close();
report(seen);
