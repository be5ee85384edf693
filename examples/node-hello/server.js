'use strict';

const { readFileSync } = require('node:fs');
const { createServer } = require('node:http');
const os = require('node:os');
const path = require('node:path');

const port = Number(process.env.PORT || 3000);
const page = readFileSync(path.join(__dirname, 'page.html'), 'utf8');

const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

function render() {
  const facts = {
    host: os.hostname(),
    pid: String(process.pid),
    node: process.version,
    uptime: `${Math.round(process.uptime())} s`,
  };
  return page.replace(/\{(\w+)\}/g, (hole, name) => (name in facts ? escape(facts[name]) : hole));
}

const server = createServer((request, response) => {
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    response.writeHead(405, { allow: 'GET, HEAD' }).end();
  } else if (request.url === '/') {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(render());
  } else {
    response.writeHead(404, { 'content-type': 'text/plain' }).end('not found\n');
  }
});

server.listen(port, () => console.log(`listening on port ${port}`));

// Finish what has begun, take nothing new, then end well.
for (const signal of ['SIGTERM', 'SIGINT']) {
  process.once(signal, () => {
    console.log(`${signal}: stopping`);
    server.close(() => process.exit(0));
  });
}
