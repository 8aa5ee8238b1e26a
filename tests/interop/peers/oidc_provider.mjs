// An OpenID provider (oidc-provider, certified by the OpenID Foundation). Its only user, Ann, signs in and consents at once.
//
// Its argument is a JSON object with these settings; POST /admin changes them while it runs, with `rotate` for a new key:
//   path       the path of the issuer, such as /realms/harbour
//   seconds    how long an access token is valid
//   format     of access tokens: jwt (RFC 9068) or opaque
//   scopes     that a client may request
//   documents  client ID metadata documents by their URLs, since a test has no public host that could serve them
// GET /admin returns the requests so far: [method, path, the parameters of forms]. Of secrets it has only the hashes of
// refresh tokens.
import { createHash, generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const settings = {
    path: '', seconds: 3600, format: 'jwt', scopes: 'docs.read docs.write', documents: {}, ...JSON.parse(process.argv[2] ?? '{}'),
};
const LOGGED = ['grant_type', 'scope', 'resource', 'client_id', 'prompt', 'code_challenge_method', 'redirect_uri'];
const logged = ([name, value]) => {
    if (name === 'refresh_token') return [[name, createHash('sha256').update(value).digest('hex')]];
    return LOGGED.includes(name) ? [[name, value]] : [];
};
const requests = [];
let serve;

// Keeps all data in memory, also after a provider is replaced.
const stored = new Map();
class Storage {
    constructor(kind) { this.kind = kind; }
    key(id) { return `${this.kind} ${id}`; }
    async upsert(id, data) { stored.set(this.key(id), data); }
    async find(id) { return stored.get(this.key(id)); }
    async findByUid(uid) { return [...stored.values()].find(data => data.kind === this.kind && data.uid === uid); }
    async findByUserCode() {}
    async consume(id) { stored.get(this.key(id)).consumed = Math.floor(Date.now() / 1000); }
    async destroy(id) { stored.delete(this.key(id)); }
    async revokeByGrantId(grantId) {
        for (const [key, data] of stored) if (data.grantId === grantId) stored.delete(key);
    }
}

function start(issuer) {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const key = { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg: 'ES256', use: 'sig' };
    const known = url => settings.documents[String(url)];
    // A provider never changes its keys: a new one with the same issuer shares the stored clients, sessions and grants.
    const provider = new Provider(issuer, {
        adapter: Storage,
        jwks: { keys: [key] },
        cookies: { keys: ['only for tests'] },
        scopes: ['openid', 'offline_access', ...settings.scopes.split(' ')],
        clients: [
            { client_id: 'harbour', client_secret: 'a secret of the harbour', redirect_uris: [], response_types: [], grant_types: ['client_credentials'] },
            // RFC 9449 §5: its tokens are bound to its key.
            { client_id: 'bound', client_secret: 'a secret of the bound', redirect_uris: [], response_types: [], grant_types: ['client_credentials'], dpop_bound_access_tokens: true },
        ],
        clientDefaults: { id_token_signed_response_alg: 'ES256' },
        enabledJWA: { idTokenSigningAlgValues: ['ES256'] },
        pkce: { required: () => true },
        responseTypes: ['code'],
        findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
        extraTokenClaims: () => ({ groups: ['staff'] }),
        rotateRefreshToken: true,
        issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
        ttl: { AccessToken: () => settings.seconds, ClientCredentials: () => settings.seconds },
        interactions: { url: (_, interaction) => `${settings.path}/interaction/${interaction.uid}` },
        fetch: async (url, options) => known(url) ? Response.json(known(url)) : fetch(url, options),
        features: {
            devInteractions: { enabled: false },
            clientCredentials: { enabled: true },
            clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
            dPoP: { enabled: true },
            introspection: { enabled: true, allowedPolicy: () => true },
            registration: { enabled: true },
            revocation: { enabled: true },
            resourceIndicators: {
                enabled: true,
                useGrantedResource: () => true,
                getResourceServerInfo: (_, resource) => ({
                    scope: settings.scopes, audience: resource, accessTokenFormat: settings.format,
                    accessTokenTTL: settings.seconds, jwt: { sign: { alg: 'ES256' } },
                }),
            },
            userinfo: { enabled: false },
        },
    });
    provider.on('server_error', (_, error) => console.error(error));
    serve = async (request, response) => {
        if (!request.url.startsWith('/interaction/')) return provider.callback()(request, response);
        // Ann signs in and consents to everything that the client requests.
        const { params, prompt, session } = await provider.interactionDetails(request, response);
        const result = { login: { accountId: 'ann' } };
        if (prompt.name === 'consent') {
            const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
            if (params.scope) {
                grant.addOIDCScope(params.scope);
                for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, params.scope);
            }
            result.consent = { grantId: await grant.save() };
        }
        return provider.interactionFinished(request, response, result);
    };
}

async function read(request) {
    let body = '';
    for await (const part of request) body += part;
    return body;
}

const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://localhost');
    if (pathname === '/admin') {
        if (request.method === 'POST') {
            const { rotate, ...changes } = JSON.parse(await read(request));
            Object.assign(settings, changes);
            if (rotate) start(issuer);
        }
        return response.end(JSON.stringify(requests));
    }
    let form = searchParams;
    if (request.headers['content-type']?.startsWith('application/x-www-form-urlencoded')) {
        const body = await read(request);
        form = new URLSearchParams(body);
        request.body = Object.fromEntries(form);  // the provider accepts a parsed body
    }
    requests.push([request.method, pathname, Object.fromEntries([...form].flatMap(logged))]);
    request.originalUrl = request.url;
    const wellKnown = `/.well-known/oauth-authorization-server${settings.path}`;  // RFC 8414 §3.1: before the path
    if (settings.path && pathname === wellKnown) request.url = '/.well-known/oauth-authorization-server';
    else if (pathname.startsWith(`${settings.path}/`)) request.url = request.url.slice(settings.path.length);
    else return response.writeHead(404).end();
    if (settings.path && pathname === wellKnown) request.originalUrl = settings.path + request.url;
    return serve(request, response);
});
server.listen(0, '127.0.0.1');
await new Promise(resolve => server.once('listening', resolve));
const issuer = `http://127.0.0.1:${server.address().port}${settings.path}`;
start(issuer);
console.log(JSON.stringify({ issuer }));
