// A client of the TypeScript SDK 1.x that signs in: calls tools and prints what it saw (see mcp2_sign_in.py).
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { report, visit } from './common.mjs';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const REDIRECT = 'http://127.0.0.1:3000/callback';
const asked = visit();
const kept = existsSync(asked.tokens) ? JSON.parse(readFileSync(asked.tokens)) : {};
const keep = (name, value) => {
    kept[name] = value;
    writeFileSync(asked.tokens, JSON.stringify(kept));
};
let code;

// A browser whose person agrees at once: keeps cookies and follows redirects.
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
    clientMetadataUrl: asked.document,
    clientMetadata: {
        client_name: 'ts1', redirect_uris: [REDIRECT], token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
    },
    clientInformation: () => kept.client,
    saveClientInformation: client => keep('client', client),
    tokens: () => kept.tokens,
    saveTokens: tokens => keep('tokens', tokens),
    saveCodeVerifier: verifier => keep('verifier', verifier),
    codeVerifier: () => kept.verifier,
    redirectToAuthorization: async url => { code = await browse(url); },
};

const transport = () => new StreamableHTTPClientTransport(new URL(asked.url), { authProvider });
const connect = async used => {
    const client = new Client({ name: 'ts1', version: '1.0' });
    await client.connect(used);
    return client;
};

// The SDK leaves it to its user to go on after the redirect, on a new connection.
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
    while (next < asked.calls.length) {
        const call = asked.calls[next];
        if (typeof call === 'string') seen.answers.push((await client.callTool({ name: call, arguments: {} })).content[0].text);
        else await new Promise(resolve => setTimeout(resolve, call * 1000));
        next += 1;
    }
    await client.close();
});
report(seen);
