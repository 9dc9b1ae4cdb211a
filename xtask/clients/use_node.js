// ioredis and node-redis: multi() is a transaction, and a client may choose a database.
const assert = require('assert');
const Redis = require('ioredis');
const { createClient, WatchError } = require('redis');

async function main(address) {
  const [host, port] = address.split(':');
  const io = new Redis({ host, port: Number(port) });
  const ioOther = new Redis({ host, port: Number(port), db: 4 });
  await io.flushall();
  assert.deepStrictEqual(await io.multi().incr('a').incrby('a', 9).get('a').exec(), [[null, 1], [null, 10], [null, '10']]);
  await assert.rejects(io.multi().incr('a').call('nosuch').exec(), /EXECABORT/);
  await io.watch('a');
  await ioOther.set('a', 1);
  assert.deepStrictEqual(await io.multi().incr('a').exec(), [[null, 11]]);
  await ioOther.flushdb();
  assert.deepStrictEqual([await ioOther.dbsize(), await io.get('a')], [0, '11']);
  io.disconnect();
  ioOther.disconnect();

  const node = await createClient({ url: `redis://${address}/5` }).connect();
  assert.deepStrictEqual(await node.multi().incr('a').incrBy('a', 9).get('a').exec(), [1, 10, '10']);
  await node.watch('a');
  await node.incr('a');
  await assert.rejects(node.multi().incr('a').exec(), WatchError);
  await node.flushDb();
  assert.strictEqual(await node.dbSize(), 0);
  node.destroy();
  console.log('ioredis', require('ioredis/package.json').version, 'node-redis', require('redis/package.json').version);
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
