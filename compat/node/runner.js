// The story of kafkajs, told to the broker whose address is the argument. Every line it prints is a fact that must not
// depend on which broker that is: no ids, no times. It ends with exit code 1 when the broker does not do its part.
//
// kafkajs reads in groups only, and a consumer that leaves waits for the fetch it has under way: hence the short waits.
import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;

const COUNT = 200;
const PATIENCE_MS = 60_000;
const PAST = 1_700_000_000_000;
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING });
const reader = (groupId) => kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 100 });
const say = (...words) => console.log(words.join(" "));

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await topicsAreMadeAndDescribed(admin);
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
  for (const [name, codec] of Object.entries(codecs)) await whatIsWrittenIsRead(admin, name, codec);
  await anIdempotentProducerWritesOnce(admin);
  await positionsAreFound(admin);
  await aGroupGoesOnWhereItStopped(admin);
  await aGroupSharesAndTakesOver(admin);
  await transactionsCommitAndAbort(admin);
  await badInputIsRefused(admin);
  await topicsGrowShrinkAndGo(admin);
  await admin.disconnect();
  say("end reached");
}

async function topicsAreMadeAndDescribed(admin) {
  await create(admin, "node-admin", 3, { "cleanup.policy": "compact", "max.message.bytes": "65536" });
  const [topic] = (await admin.fetchTopicMetadata({ topics: ["node-admin"] })).topics;
  for (const partition of topic.partitions.sort((a, b) => a.partitionId - b.partitionId)) {
    const led = partition.leader >= 0;
    say("partition", partition.partitionId, "replicas", partition.replicas.length, "in sync", partition.isr.length, led);
  }
  say("listed", (await admin.listTopics()).includes("node-admin"));
  const cluster = await admin.describeCluster();
  say("cluster of", cluster.brokers.length, "named", cluster.clusterId !== "", "controlled", cluster.controller !== null);
  say("configs", await configs(admin, "node-admin"));
  const changed = [{ name: "retention.ms", value: "60000" }];
  await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: "node-admin", configEntries: changed }] });
  await until("the altered configs", async () => (await configs(admin, "node-admin")).includes("retention.ms=60000"));
  say("altered", await configs(admin, "node-admin"));
}

async function whatIsWrittenIsRead(admin, name, compression) {
  const topic = `node-${name}`;
  // The records are dated in the past, where retention would soon find them.
  await create(admin, topic, 1, { "retention.ms": "-1" });
  const messages = Array.from({ length: COUNT }, (_, n) => ({
    key: n % 7 ? `key ${n % 10}` : null,
    value: n % 11 ? `value ${n} `.repeat(5) : null,
    headers: { trace: [`t${n}`, "again"], kind: "story" },
    timestamp: String(PAST + n),
    partition: 0,
  }));
  const producer = kafka.producer();
  await producer.connect();
  const [written] = await producer.send({ topic, messages, compression });
  await producer.disconnect();
  say(name, "written from", written.baseOffset, "error", written.errorCode);
  const seen = await readAll(topic, `node-reads-${name}`, COUNT);
  say(name, "read", seen.length, "digest", digest(seen));
}

async function anIdempotentProducerWritesOnce(admin) {
  await create(admin, "node-idempotent", 1, {});
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let n = 0; n < 20; n++) {
    const messages = Array.from({ length: 10 }, (_, m) => ({ value: `value ${n * 10 + m}` }));
    const [written] = await producer.send({ topic: "node-idempotent", messages, acks: -1 });
    if (written.baseOffset !== String(n * 10)) throw new Error(`batch ${n} is at ${written.baseOffset}`);
  }
  await producer.disconnect();
  say("idempotent digest", digest(await readAll("node-idempotent", "node-reads-idempotent", COUNT)));
}

async function positionsAreFound(admin) {
  const [ends] = await admin.fetchTopicOffsets("node-none");
  say("begins", ends.low, "ends", ends.high);
  for (const time of [0, PAST + 100, PAST + 1_000_000]) {
    const [found] = await admin.fetchTopicOffsetsByTimestamp("node-none", time);
    say("time", time, "is at", found.offset);
  }
  const consumer = reader("node-seek");
  await consumer.connect();
  await consumer.subscribe({ topics: ["node-none"], fromBeginning: true });
  const seen = [];
  const wanted = ["150", "3", "199", "0"];
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch }) => {
      if (seen.length < wanted.length && batch.messages[0].offset === wanted[seen.length]) {
        seen.push(batch.messages[0].offset);
        if (seen.length < wanted.length) seekTo(wanted[seen.length]);
      }
    },
  });
  const seekTo = (offset) => consumer.seek({ topic: "node-none", partition: 0, offset });
  seekTo(wanted[0]);
  await until("the seeks", () => seen.length === wanted.length);
  await consumer.disconnect();
  say("seeks gave", seen.join(", "));
}

async function aGroupGoesOnWhereItStopped(admin) {
  const topic = "node-none";
  say("first life begins at", await firstOffset("node-resume", topic));
  await admin.setOffsets({ groupId: "node-resume", topic, partitions: [{ partition: 0, offset: "40" }] });
  say("second life begins at", await firstOffset("node-resume", topic, "57"));
  const [committed] = await admin.fetchOffsets({ groupId: "node-resume", topics: [topic] });
  say("committed", committed.partitions[0].offset, "metadata", String(committed.partitions[0].metadata));
  say("third life begins at", await firstOffset("node-resume", topic));
  await admin.deleteGroups(["node-resume"]);
  say("group listed after deletion", (await admin.listGroups()).groups.some((group) => group.groupId === "node-resume"));
}

async function firstOffset(groupId, topic, commit) {
  const consumer = reader(groupId);
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const seen = [];
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => void seen.push(message.offset) });
  await until("a record", () => seen.length > 0);
  if (commit) await consumer.commitOffsets([{ topic, partition: 0, offset: commit, metadata: "noted" }]);
  await consumer.disconnect();
  return seen[0];
}

async function aGroupSharesAndTakesOver(admin) {
  const topic = "node-shared";
  await create(admin, topic, 4, {});
  await write(topic);
  const seen = new Set();
  const shares = async () => {
    const [group] = (await admin.describeGroups(["node-share"])).groups;
    const sizes = group.members.map((member) => {
      const decoded = kafkajs.AssignerProtocol.MemberAssignment.decode(member.memberAssignment);
      return decoded?.assignment[topic]?.length ?? 0;
    });
    return `${group.state} ${group.protocol} ${sizes.join("+")}`;
  };
  const first = await member(topic, seen);
  await until("all partitions for one", async () => (await shares()).endsWith(" 4"));
  say("alone", await shares());
  const second = await member(topic, seen);
  await until("two for each", async () => (await shares()).endsWith(" 2+2"));
  say("together", await shares());
  await second.disconnect();
  await until("one takes over", async () => (await shares()).endsWith(" 4"));
  await write(topic);
  await until("all is read", () => seen.size === 2 * COUNT);
  await first.disconnect();
  await until("the group to empty", async () => (await shares()).startsWith("Empty"));
  const [committed] = await admin.fetchOffsets({ groupId: "node-share", topics: [topic] });
  say("one took over and has read", seen.size, "committed", committed.partitions.map((row) => row.offset).sort());
}

async function member(topic, seen) {
  const consumer = reader("node-share");
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ eachMessage: async ({ partition, message }) => void seen.add(`${partition}:${message.offset}`) });
  return consumer;
}

async function transactionsCommitAndAbort(admin) {
  await create(admin, "node-transactions", 1, {});
  const producer = kafka.producer({ transactionalId: "node-writer", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let round = 0; round < 4; round++) {
    const transaction = await producer.transaction();
    const messages = Array.from({ length: 5 }, (_, n) => ({ value: `${round}.${n}` }));
    await transaction.send({ topic: "node-transactions", messages });
    if (round === 1) {
      const topics = [{ topic: "node-none", partitions: [{ partition: 0, offset: "99" }] }];
      await transaction.sendOffsets({ consumerGroupId: "node-transfer", topics });
    }
    await (round % 2 ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  const seen = await readAll("node-transactions", "node-reads-transactions", 10);
  say("committed", seen.map((message) => message.value).join(" "));
  const [moved] = await admin.fetchOffsets({ groupId: "node-transfer", topics: ["node-none"] });
  say("offsets of the transaction", moved.partitions[0].offset);
}

async function badInputIsRefused(admin) {
  const make = (topic, numPartitions, configEntries = []) =>
    refusal(() => admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }));
  say("create again", await admin.createTopics({ topics: [{ topic: "node-none" }] }));
  say("illegal name", await make("no spaces", 1));
  say("no partitions", await make("node-zero", 0));
  say("unknown config", await make("node-odd", 1, [{ name: "no.such.config", value: "1" }]));
  const hasty = kafka.admin({ retry: { retries: 0 } });
  await hasty.connect();
  say("delete unknown", await refusal(() => hasty.deleteTopics({ topics: ["node-none-such"] })));
  say("unknown topic", await refusal(() => hasty.fetchTopicOffsets("node-none-such")));
  await hasty.disconnect();
  const fewer = [{ topic: "node-shared", count: 2 }];
  say("fewer partitions", await refusal(() => admin.createPartitions({ topicPartitions: fewer })));
  await create(admin, "node-small", 1, { "max.message.bytes": "1000" });
  const producer = kafka.producer({ retry: { retries: 0 } });
  await producer.connect();
  const send = (value) => producer.send({ topic: "node-small", messages: [{ value }] });
  say("too large", await refusal(() => send("x".repeat(5000))));
  say("goes on", (await send("x"))[0].baseOffset);
  await producer.disconnect();
}

async function topicsGrowShrinkAndGo(admin) {
  await admin.createPartitions({ topicPartitions: [{ topic: "node-gzip", count: 3 }] });
  await until("the new partitions", async () => (await offsets(admin, "node-gzip")).length === 3);
  await admin.deleteTopicRecords({ topic: "node-gzip", partitions: [{ partition: 0, offset: "150" }] });
  const rows = await offsets(admin, "node-gzip");
  say("low watermark", rows.find((row) => row.partition === 0).low);
  await admin.deleteTopics({ topics: ["node-gzip"] });
  await until("the topic to go", async () => !(await admin.listTopics()).includes("node-gzip"));
  say("listed", (await admin.listTopics()).filter((name) => name.startsWith("node-")).sort().join(" "));
}

async function create(admin, topic, numPartitions, configs) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
  await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true });
}

async function configs(admin, topic) {
  const configNames = ["cleanup.policy", "max.message.bytes", "retention.ms"];
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames }];
  const [found] = (await admin.describeConfigs({ resources, includeSynonyms: false })).resources;
  const shown = found.configEntries.map((row) => `${row.configName}=${row.configValue} ${row.configSource}`);
  return shown.sort().join(", ");
}

// Kafka names a new partition before its leader knows of it; kafkajs does not ask again by itself then.
async function offsets(admin, topic) {
  try {
    return await admin.fetchTopicOffsets(topic);
  } catch (error) {
    if (error.retriable) return [];
    throw error;
  }
}

async function write(topic) {
  const messages = Array.from({ length: COUNT }, (_, n) => ({ value: `value ${n}`, partition: n % 4 }));
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages });
  await producer.disconnect();
}

async function readAll(topic, groupId, count) {
  const consumer = reader(groupId);
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const seen = [];
  const eachMessage = async ({ message }) => {
    const { offset, timestamp, headers } = message;
    const trace = Object.entries(headers ?? {}).map(([name, value]) => `${name}=${value}`);
    seen.push({ offset, key: text(message.key), value: text(message.value), dated: timestamp < PAST * 2, trace });
  };
  await consumer.run({ autoCommit: false, eachMessage });
  await until(`${count} records of ${topic}`, () => seen.length >= count);
  await consumer.disconnect();
  return seen;
}

const text = (bytes) => (bytes === null ? null : bytes.toString());
const digest = (rows) => createHash("sha256").update(JSON.stringify(rows)).digest("hex").slice(0, 16);

// The protocol's name of an error, without the text that goes with it: texts are a broker's own.
async function refusal(attempt) {
  try {
    await attempt();
  } catch (error) {
    return (error.errors ?? [error.cause ?? error]).map((each) => each.type ?? each.name).join(" ");
  }
  return "was accepted";
}

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`);
    await pause(20);
  }
}

await main();
