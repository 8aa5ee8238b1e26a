// The shared part of the TypeScript peers' programs, as in common.py.
import { createHash } from 'node:crypto';
import { appendFileSync, writeFileSync } from 'node:fs';

export const TEXT_URI = 'peer://text';
export const TEXT = 'one, two; ünïcödé ✓\n';
export const BLOB_URI = 'peer://blob';
export const BLOB = Buffer.concat(Array.from({ length: 4 }, () => Buffer.from(Array.from({ length: 256 }, (_, n) => n))));
export const ITEM_TEMPLATE = 'peer://item/{id}';
export const ITEMS = ['amber', 'anchor', 'beacon'];
export const GROWN_URI = 'peer://grown';

export const item = id => JSON.stringify({ id });
export const transportAndPort = () => [process.argv[2], Number(process.argv[3] ?? 0)];
export const readInput = () => JSON.parse(process.argv[2]);
export const sha256 = base64 => createHash('sha256').update(Buffer.from(base64, 'base64')).digest('hex');
export const report = seen => console.log(JSON.stringify(seen));

export async function applyChange(change, callTool) {
    if (change.append) appendFileSync(change.append, 'more\n');
    else if (change.create) writeFileSync(change.create, 'new\n', { flag: 'wx' });
    else await callTool({ name: change.call, arguments: change.arguments ?? {} });
}

// A promise that `.resolve(value)` resolves. `.wait()` rejects after 30 seconds.
export function deferred(name) {
    let resolve;
    const resolved = new Promise(done => { resolve = done; });
    const timeout = () => new Promise((_, reject) => setTimeout(() => reject(new Error(`${name}: nothing within 30 s`)), 30_000).unref());
    return { resolve, wait: () => Promise.race([resolved, timeout()]) };
}

// The whole visit. The clients of both SDKs have these methods.
export async function tour(client, seen, input, watch, end = async () => {}) {
    seen.uris = [];
    seen.pages = 0;
    let cursor;
    do {
        const page = await client.listResources(cursor === undefined ? {} : { cursor });
        seen.pages += 1;
        seen.uris.push(...page.resources.map(resource => resource.uri));
        cursor = page.nextCursor;
    } while (cursor !== undefined);
    seen.templates = (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate);
    const text = (await client.readResource({ uri: input.text })).contents[0];
    Object.assign(seen, { text: text.text, text_type: text.mimeType, text_uri: text.uri });
    const binary = (await client.readResource({ uri: input.binary })).contents[0];
    Object.assign(seen, { binary: sha256(binary.blob), binary_type: binary.mimeType });
    seen.template_text = (await client.readResource({ uri: input.template_uri })).contents[0].text;
    const completed = await client.complete({ ref: { type: 'ref/resource', uri: input.template }, argument: input.argument });
    seen.completion = completed.completion.values;

    seen.tools = (await client.listTools()).tools.map(tool => tool.name);
    if (input.search) {
        const found = await client.callTool({ name: 'search', arguments: { query: input.search } });
        Object.assign(seen, { search: found.structuredContent, search_text: JSON.parse(found.content[0].text) });
        const fetched = await client.callTool({ name: 'fetch', arguments: { id: found.structuredContent.results[0].id } });
        Object.assign(seen, { fetch: fetched.structuredContent, fetch_text: JSON.parse(fetched.content[0].text) });
    }

    await watch();

    try {
        await client.readResource({ uri: input.missing });
    } catch (error) {
        seen.not_found = { code: error.code, data: error.data };
    }
    await end();
    await client.close();
    seen.ended = true;
    report(seen);
}
