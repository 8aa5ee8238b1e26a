// A client of the TypeScript SDK 1.x that signs in, calls tools and prints the results (see mcp2_sign_in.py).
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { report, readInput } from './common.mjs';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const REDIRECT = 'http://127.0.0.1:3000/callback';
const input = readInput();
const stored = existsSync(input.tokens) ? JSON.parse(readFileSync(input.tokens)) : {};
const save = (name, value) => {
    stored[name] = value;
    writeFileSync(input.tokens, JSON.stringify(stored));
};
let code;

// Act as a browser whose user consents at once: keep cookies and follow redirects.
async function browse(url) {
    const cookies = new Map();
    while (!String(url).startsWith(REDIRECT)) {
        const cookie = [...cookies].map(pair => pair.join('=')).join('; ');
        const answer = await fetch(url, { redirect: 'manual', headers: { cookie } });
        for (const line of answer.headers.getSetCookie()) {
            const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
            cookies.set(name, value);
        }
        if (!answer.headers.has('location')) throw new Error(await answer.text());
        url = new URL(answer.headers.get('location'), url);
    }
    return url.searchParams.get('code');
}

const authProvider = {
    redirectUrl: REDIRECT,
    clientMetadataUrl: input.document,
    clientMetadata: {
        client_name: 'ts1', redirect_uris: [REDIRECT], token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
    },
    clientInformation: () => stored.client,
    saveClientInformation: client => save('client', client),
    tokens: () => stored.tokens,
    saveTokens: tokens => save('tokens', tokens),
    saveCodeVerifier: verifier => save('verifier', verifier),
    codeVerifier: () => stored.verifier,
    redirectToAuthorization: async url => { code = await browse(url); },
};

const transport = () => new StreamableHTTPClientTransport(new URL(input.url), { authProvider });
const connect = async used => {
    const client = new Client({ name: 'ts1', version: '1.0' });
    await client.connect(used);
    return client;
};

// This SDK requires its user to connect again after the redirect.
async function signedIn(work) {
    for (;;) {
        const used = transport();
        try {
            const client = await connect(used);
            return await work(client);
        } catch (error) {
            if (!(error instanceof UnauthorizedError)) throw error;
            await used.finishAuth(code);
            await used.close();
        }
    }
}

const seen = { revision: '2025-11-25', answers: [] };
let next = 0;
await signedIn(async client => {
    while (next < input.calls.length) {
        const call = input.calls[next];
        if (typeof call === 'string') seen.answers.push((await client.callTool({ name: call, arguments: {} })).content[0].text);
        else await new Promise(resolve => setTimeout(resolve, call * 1000));
        next += 1;
    }
    await client.close();
});
report(seen);
