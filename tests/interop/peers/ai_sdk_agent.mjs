// The AI SDK: text that is generated with the tools of a server.
import { tour } from './agent_tour.mjs';
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs } from 'ai';

await tour(async (server, modelUrl) => {
    const [command, ...args] = server.command ?? [];
    const transport = server.url ? { type: 'http', url: server.url } : new Experimental_StdioMCPTransport({ command, args });
    const client = await createMCPClient({ transport });
    const scripted = createOpenAICompatible({ name: 'scripted', baseURL: modelUrl })('scripted');
    return {
        tools: async () => Object.keys(await client.tools()),
        resources: async () => (await client.listResources()).resources.map(resource => resource.uri),
        read: async uri => (await client.readResource({ uri })).contents[0].text,
        run: async prompt => {
            const tools = await client.tools();
            return (await generateText({ model: scripted, tools, prompt, stopWhen: stepCountIs(20), maxRetries: 0 })).text;
        },
        close: () => client.close(),
    };
});
