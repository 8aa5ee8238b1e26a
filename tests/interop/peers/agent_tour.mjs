// The steps of the TypeScript agent frameworks with our servers, as in agent_tour.py.
import { report, readInput } from './common.mjs';

async function attempt(step) {
    try {
        return await step();
    } catch (error) {
        return { failed: String(error?.stack ?? error) };
    }
}

// `connect(server, modelUrl)` returns an adapter with the methods `tools`, `resources`, `read`, `run` and `close`.
export async function tour(connect) {
    const input = readInput(), seen = {};
    for (const [name, server] of Object.entries(input.servers)) {
        seen[name] = await attempt(async () => {
            const adapter = await connect(server, input.model_url), results = { runs: {} };
            results.tools = await attempt(() => adapter.tools());
            results.resources = await attempt(() => adapter.resources());
            results.read = await attempt(() => adapter.read(server.read));
            for (const [run, calls] of Object.entries(server.runs)) {
                results.runs[run] = await attempt(() => adapter.run(JSON.stringify(calls)));
            }
            await adapter.close();
            return results;
        });
    }
    report(seen);
    process.exit(0);
}
