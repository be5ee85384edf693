'use strict';

const { createServer } = require('node:http');

const server = createServer((request, response) => {
  response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
  response.end('<!doctype html>\n<title>Hello from a ply box</title>\n<h1>Hello, without a manifest</h1>\n');
});

server.listen(process.env.PORT || 3000, () => console.log('listening'));
process.once('SIGTERM', () => server.close(() => process.exit(0)));
