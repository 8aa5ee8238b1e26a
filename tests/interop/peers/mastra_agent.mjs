// Mastra: an agent with the tools of a server.
import { tour } from './agent_tour.mjs';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { MCPClient } from '@mastra/mcp';

let visits = 0;

await tour(async (server, modelUrl) => {
    const [command, ...args] = server.command ?? [];
    const how = server.url ? { url: new URL(server.url) } : { command, args };
    const client = new MCPClient({ id: `visit-${visits++}`, servers: { ours: how } });
    const scripted = createOpenAICompatible({ name: 'scripted', baseURL: modelUrl })('scripted');
    return {
        tools: async () => Object.keys(await client.listTools()),
        resources: async () => (await client.resources.list()).ours.map(resource => resource.uri),
        read: async uri => (await client.resources.read('ours', uri)).contents[0].text,
        run: async prompt => {
            const tools = await client.listTools();
            const agent = new Agent({ id: 'agent', name: 'agent', instructions: '', model: scripted, tools });
            return (await agent.generate(prompt, { maxSteps: 20 })).text;
        },
        close: () => client.disconnect(),
    };
});
