// Does the same as `turns.py` for the clients of both TypeScript SDKs, which connect in `ts1_client.mjs` and
// `ts2_client.mjs`.
import { createInterface } from 'node:readline';

export const target = JSON.parse(process.argv[2]);
const NEVER_LATE = { timeout: 600_000 };

export async function runCommands(client) {
    const ask = async (method, params) => {
        if (method === 'tools/call') return (await client.callTool(params, ...options(client))).content[0].text.length;
        const content = (await client.readResource(params, NEVER_LATE)).contents[0];
        return (content.text ?? content.blob).length;
    };
    console.log('ready');
    for await (const line of createInterface({ input: process.stdin })) {
        console.log(JSON.stringify(await measure(ask, JSON.parse(line))));
    }
    await client.close();
    process.exit(0);
}

// SDK 1 takes a schema between params and options.
const options = client => client.v1 ? [undefined, NEVER_LATE] : [NEVER_LATE];

async function measure(ask, { method, params, in_flight, seconds, most, length }) {
    const latencies = [];
    let errors = 0;
    const began = performance.now(), before = process.cpuUsage(), end = began + seconds * 1000;
    const worker = async number => {
        while (!latencies.length || (performance.now() < end && latencies.length < most)) {
            const asked = performance.now();
            const got = await ask(method, params[number % params.length]);
            latencies.push((performance.now() - asked) * 1e6);
            if (got !== length) errors++;
            number += in_flight;
        }
    };
    await Promise.all(Array.from({ length: in_flight }, (_, number) => worker(number)));
    const used = process.cpuUsage(before), elapsed = (performance.now() - began) / 1000;
    latencies.sort((a, b) => a - b);
    const count = latencies.length;
    return {
        requests: count, seconds: elapsed, cpu: (used.user + used.system) / 1e6, errors,
        p50: latencies[count >> 1], p99: latencies[Math.floor(count * 0.99)],
    };
}
