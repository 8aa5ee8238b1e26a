// What the TypeScript agent frameworks do with a server of ours; agent_tour.py says what is seen.
import { report, visit } from './common.mjs';

async function attempt(doing) {
    try {
        return await doing();
    } catch (error) {
        return { failed: String(error?.stack ?? error) };
    }
}

// `connect(server, model)` gives the ways `tools`, `resources`, `read`, `run` and `close`.
export async function tour(connect) {
    const asked = visit(), seen = {};
    for (const [name, server] of Object.entries(asked.servers)) {
        seen[name] = await attempt(async () => {
            const way = await connect(server, asked.model), told = { runs: {} };
            told.tools = await attempt(() => way.tools());
            told.resources = await attempt(() => way.resources());
            told.read = await attempt(() => way.read(server.read));
            for (const [run, calls] of Object.entries(server.runs)) {
                told.runs[run] = await attempt(() => way.run(JSON.stringify(calls)));
            }
            await way.close();
            return told;
        });
    }
    report(seen);
    process.exit(0);
}
