// Timers, promises, a worker thread, compression in the thread pool, a directory that is watched (who is not told of a
// change waits for ever), and objects enough for the collector.
const fs = require("fs");
const { Worker } = require("worker_threads");
const zlib = require("zlib");
const { createHash } = require("crypto");

const other = () => {
  const { parentPort } = require("worker_threads");
  parentPort.on("message", (n) => {
    let sum = 0n;
    for (let i = 1; i < 3000; i++) sum = (sum * 31n + BigInt(i * n)) % 1000000007n;
    parentPort.postMessage(String(sum));
  });
};
const worker = new Worker(`(${other})()`, { eval: true });
const answer = (n) => new Promise((done) => worker.once("message", done).postMessage(n));
const squeeze = (data) => new Promise((done, failed) => zlib.deflate(data, (e, out) => (e ? failed(e) : done(out))));
fs.mkdirSync("spool", { recursive: true });
const watcher = fs.watch("spool");
const told = (name) =>
  new Promise((done) => {
    const listen = (what, of) => what === "change" && of === name && (watcher.off("change", listen), done());
    watcher.on("change", listen);
    fs.writeFileSync(`spool/${name}`, name);
  });
const pause = () => new Promise((done) => setTimeout(done, 1));
(async () => {
  const seen = new Map();
  for (let step = 0; step < 300; step++) {
    for (let i = 0; i < 2000; i++) seen.set((step * 2000 + i) % 30011, { step, text: `${step}:${i}` });
    const text = [...seen.values()].slice(0, 3000).map((one) => one.text).join(" ");
    const [small, sum] = await Promise.all([squeeze(Buffer.from(text)), answer(step), pause(), told(String(step % 20))]);
    console.log(step, sum, createHash("sha256").update(small).digest("hex"));
  }
  watcher.close();
  await worker.terminate();
})();
