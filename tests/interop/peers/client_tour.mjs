// The calls that each TypeScript peer's client makes to the feature server, as in client_tour.py.
import { report } from './common.mjs';

export const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const ROOTS = [['file:///home/mary/charts', 'charts'], ['file:///home/mary/logs', 'logs']];

export const logs = [], inputRequests = [];
export const log = ({ params }) => { logs.push([params.level, params.logger ?? null, params.data]); };

export function elicit({ params }) {
    inputRequests.push(params);
    if (params.mode === 'url') return { action: 'accept' };
    if (params.message.startsWith('Decline')) return { action: 'decline' };
    if (params.message.startsWith('Cancel')) return { action: 'cancel' };
    return { action: 'accept', content: { quay: 'south', hours: 3 } };
}

export function sample({ params }) {
    inputRequests.push(params);
    const content = { type: 'text', text: 'Berth at the south quay.' };
    return { role: 'assistant', model: 'parrot-1', content, stopReason: 'endTurn' };
}

export function roots() {
    inputRequests.push('roots');
    return { roots: ROOTS.map(([uri, name]) => ({ uri, name })) };
}

// `call(params, options)` is the client's callTool. Both SDKs check structured content with the listed schema.
export async function tour(client, visit, seen, call, setLevel) {
    seen.schemas = Object.fromEntries((await client.listTools()).tools.map(tool => [tool.name, tool.outputSchema ?? null]));
    seen.results = [];
    for (const [name, args] of visit.calls) seen.results.push(await call({ name, arguments: args }));

    const progress = [];
    await setLevel('info');
    const onprogress = ({ progress: done, total = null, message = null }) => { progress.push([done, total, message]); };
    seen.loaded = await call({ name: 'load', arguments: { steps: 3 } }, { onprogress });
    Object.assign(seen, { progress, logs });

    seen.prompts = (await client.listPrompts()).prompts;
    seen.prompt = await client.getPrompt({ name: 'briefing', arguments: { ship: 'amber', line: '7' } });
    const ref = { type: 'ref/prompt', name: 'briefing' };
    seen.completion = (await client.complete({ ref, argument: { name: 'ship', value: 'a' } })).completion.values;

    const stop = new AbortController();
    const waiting = call({ name: 'wait', arguments: { tag: visit.tag } }, { signal: stop.signal, onprogress: () => stop.abort('no longer wanted') });
    seen.cancelled = await waiting.then(() => 'answered', () => 'cancelled');
    seen.stopped = await call({ name: 'was_stopped', arguments: { tag: visit.tag } });

    seen.answers = [];
    for (const [name, args] of visit.calls_with_input) seen.answers.push(await call({ name, arguments: args }));
    await client.close();
    report({ ...seen, input_requests: inputRequests, ended: true });
}
