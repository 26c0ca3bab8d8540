import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client's story, told to the broker whose address is the argument. Every line it prints is a fact that must
 * not depend on which broker that is: no ids, no times. It ends with an exception when the broker does not do its part.
 */
public final class Runner {
    static final int COUNT = 200;
    static final long PATIENCE_MS = 60_000;
    static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            topicsAreMadeAndDescribed(admin);
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) whatIsWrittenIsRead(admin, codec);
            anIdempotentProducerIsKnown(admin);
            positionsAreFound(admin);
            aGroupGoesOnWhereItStopped(admin);
            aGroupSharesAndTakesOver(admin);
            transactionsCommitAndAbort(admin);
            badInputIsRefused(admin);
            topicsGrowShrinkAndGo(admin);
        }
        say("end", "reached");
    }

    static void topicsAreMadeAndDescribed(Admin admin) throws Exception {
        create(admin, "java-admin", 3, Map.of("cleanup.policy", "compact", "max.message.bytes", "65536"));
        var found = admin.describeTopics(List.of("java-admin")).allTopicNames().get().get("java-admin");
        say("topic", found.name(), "internal", found.isInternal(), "partitions", found.partitions().size());
        for (var partition : found.partitions()) {
            say("partition", partition.partition(), "replicas", partition.replicas().size(), "in sync",
                partition.isr().size(), "led", partition.leader() != null && !partition.leader().isEmpty());
        }
        var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(found.topicId())));
        say("topic by its id", byId.allTopicIds().get().get(found.topicId()).name());
        say("listed", admin.listTopics().names().get().contains("java-admin"));
        var cluster = admin.describeCluster();
        say("cluster of", cluster.nodes().get().size(), "named", !cluster.clusterId().get().isEmpty());
        say("configs", configs(admin, "java-admin", "cleanup.policy", "max.message.bytes", "retention.ms"));
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, "java-admin");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"), AlterConfigOp.OpType.APPEND),
            new AlterConfigOp(new ConfigEntry("max.message.bytes", null), AlterConfigOp.OpType.DELETE)))).all().get();
        await("the altered configs", () -> configs(admin, "java-admin", "retention.ms").contains("60000"));
        say("altered", configs(admin, "java-admin", "cleanup.policy", "max.message.bytes", "retention.ms"));
    }

    static void whatIsWrittenIsRead(Admin admin, String codec) throws Exception {
        String topic = "java-" + codec;
        // The records are dated in the past, where retention would soon find them.
        create(admin, topic, 1, Map.of("retention.ms", "-1"));
        var lines = new ArrayList<Future<RecordMetadata>>();
        try (var producer = producer(Map.of("compression.type", codec, "linger.ms", "50"))) {
            for (int n = 0; n < COUNT; n++) {
                var record = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + n, n % 7 == 0 ? null : "key " + n % 10,
                    n % 11 == 0 ? null : ("value " + n + " ").repeat(5));
                record.headers().add("trace", ("t" + n).getBytes(StandardCharsets.UTF_8)).add("trace", null);
                lines.add(producer.send(record));
            }
        }
        say(codec, "written", lines.get(0).get().offset(), "to", lines.get(COUNT - 1).get().offset());
        var seen = read(topic, COUNT, Map.of());
        say(codec, "read", seen.size(), "digest", digest(seen));
    }

    static void anIdempotentProducerIsKnown(Admin admin) throws Exception {
        var partition = new TopicPartition("java-idempotent", 0);
        create(admin, partition.topic(), 1, Map.of());
        try (var producer = producer(Map.of("enable.idempotence", "true", "batch.size", "200"))) {
            for (int n = 0; n < COUNT; n++) producer.send(new ProducerRecord<>(partition.topic(), "key", "value " + n));
            producer.flush();
            var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            for (var state : states) {
                say("producer of epoch", state.producerEpoch(), "last sequence", state.lastSequence(), "transaction",
                    state.currentTransactionStartOffset().isPresent());
            }
        }
        say("idempotent digest", digest(read(partition.topic(), COUNT, Map.of())));
    }

    static void positionsAreFound(Admin admin) throws Exception {
        var partition = new TopicPartition("java-none", 0);
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            say("begins", consumer.beginningOffsets(List.of(partition)), "ends", consumer.endOffsets(List.of(partition)));
            for (long offset : new long[] {150, 3, COUNT - 1}) {
                consumer.seek(partition, offset);
                say("seek", offset, "gives", nextOf(consumer).offset());
            }
            consumer.seekToBeginning(List.of(partition));
            say("seek to the beginning gives", nextOf(consumer).offset());
            consumer.seekToEnd(List.of(partition));
            say("seek to the end is at", consumer.position(partition));
            consumer.seek(partition, 10_000);
            say("seek beyond the end gives", nextOf(consumer).offset());
            for (long time : new long[] {0, 1_700_000_000_100L, 1_900_000_000_000L}) {
                var found = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
                say("time", time, "is at", found == null ? "nothing" : found.offset() + " of " + found.timestamp());
            }
        }
        var newest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get();
        say("greatest time", newest.timestamp(), "at", newest.offset());
    }

    static void aGroupGoesOnWhereItStopped(Admin admin) throws Exception {
        var partition = new TopicPartition("java-none", 0);
        var settings = Map.of("group.id", "java-resume", "max.poll.records", "40");
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(partition.topic()));
            say("first life begins at", nextOf(consumer).offset());
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(40, "forty")));
        }
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(partition.topic()));
            say("second life begins at", nextOf(consumer).offset());
            var committed = consumer.committed(Set.of(partition)).get(partition);
            say("committed", committed.offset(), committed.metadata());
        }
        var offsets = admin.listConsumerGroupOffsets("java-resume").partitionsToOffsetAndMetadata().get();
        say("admin sees", offsets.get(partition).offset(), offsets.get(partition).metadata());
        admin.alterConsumerGroupOffsets("java-resume", Map.of(partition, new OffsetAndMetadata(7))).all().get();
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(partition.topic()));
            say("third life begins at", nextOf(consumer).offset());
        }
        admin.deleteConsumerGroups(List.of("java-resume")).all().get();
        say("group listed after deletion",
            admin.listGroups().all().get().stream().anyMatch(group -> group.groupId().equals("java-resume")));
    }

    static void aGroupSharesAndTakesOver(Admin admin) throws Exception {
        create(admin, "java-shared", 4, Map.of());
        write("java-shared", 4);
        var settings = Map.of("group.id", "java-share", "heartbeat.interval.ms", "300");
        var seen = new TreeSet<String>();
        try (var first = consumer(settings)) {
            first.subscribe(List.of("java-shared"));
            await("all partitions for one", () -> poll(seen, first) && first.assignment().size() == 4);
            try (var second = consumer(settings)) {
                second.subscribe(List.of("java-shared"));
                await("two for each", () -> poll(seen, first, second)
                    && first.assignment().size() == 2 && second.assignment().size() == 2);
                say("two share", partitions(first.assignment(), second.assignment()));
                var group = admin.describeConsumerGroups(List.of("java-share")).all().get().get("java-share");
                say("group is", group.groupState(), "members", group.members().size(), group.partitionAssignor());
            }
            await("one takes over", () -> poll(seen, first) && first.assignment().size() == 4);
            write("java-shared", 4);
            await("all is read", () -> poll(seen, first) && seen.size() == 2 * COUNT);
            first.commitSync();
            say("one takes over and has read", seen.size());
        }
        var left = admin.describeConsumerGroups(List.of("java-share")).all().get().get("java-share");
        say("group is", left.groupState(), "members", left.members().size());
        var offsets = admin.listConsumerGroupOffsets("java-share").partitionsToOffsetAndMetadata().get();
        say("committed in all", offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
    }

    static void transactionsCommitAndAbort(Admin admin) throws Exception {
        create(admin, "java-transactions", 1, Map.of());
        var partition = new TopicPartition("java-transactions", 0);
        var settings = Map.<String, Object>of("transactional.id", "java-writer");
        try (var producer = producer(settings)) {
            producer.initTransactions();
            for (int round = 0; round < 4; round++) {
                producer.beginTransaction();
                for (int n = 0; n < 5; n++) producer.send(new ProducerRecord<>(partition.topic(), "k", round + "." + n));
                if (round == 1) {
                    var input = new TopicPartition("java-none", 0);
                    producer.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(99)),
                        new ConsumerGroupMetadata("java-transfer"));
                }
                producer.flush();
                if (round % 2 == 0) producer.abortTransaction();
                else producer.commitTransaction();
            }
            try (var successor = producer(settings)) {
                successor.initTransactions();
                String refusal = refusal(() -> {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(partition.topic(), "k", "late")).get();
                    producer.commitTransaction();
                });
                // Which of the two it is depends on the version of transactions, see FINDINGS.md.
                var fenced = List.of("ProducerFencedException", "InvalidProducerEpochException").contains(refusal);
                say("old producer", fenced ? "is fenced" : refusal);
            }
        }
        for (String level : List.of("read_committed", "read_uncommitted")) {
            int count = level.equals("read_committed") ? 10 : 20;
            var values = new ArrayList<String>();
            for (var record : read(partition.topic(), count, Map.of("isolation.level", level))) values.add(record.value());
            say(level, values);
        }
        var moved = admin.listConsumerGroupOffsets("java-transfer").partitionsToOffsetAndMetadata().get();
        say("offsets of the transaction", moved.get(new TopicPartition("java-none", 0)).offset());
        var state = admin.describeTransactions(List.of("java-writer")).all().get().get("java-writer");
        say("transaction is", state.state(), "partitions", state.topicPartitions().size());
    }

    static void badInputIsRefused(Admin admin) throws Exception {
        say("create again", refusal(() -> create(admin, "java-none", 1, Map.of())));
        say("illegal name", refusal(() -> create(admin, "no spaces", 1, Map.of())));
        say("no partitions", refusal(() -> create(admin, "java-zero", 0, Map.of())));
        say("unknown config", refusal(() -> create(admin, "java-odd", 1, Map.of("no.such.config", "1"))));
        say("bad config", refusal(() -> create(admin, "java-odd", 1, Map.of("retention.ms", "soon"))));
        say("unknown topic", refusal(() -> admin.describeTopics(List.of("java-none-such")).allTopicNames().get()));
        say("delete unknown", refusal(() -> admin.deleteTopics(List.of("java-none-such")).all().get()));
        say("fewer partitions", refusal(
            () -> admin.createPartitions(Map.of("java-shared", NewPartitions.increaseTo(2))).all().get()));
        say("delete beyond the end", refusal(() -> admin.deleteRecords(
            Map.of(new TopicPartition("java-none", 0), RecordsToDelete.beforeOffset(10_000))).all().get()));
        say("unknown group", refusal(() -> admin.deleteConsumerGroups(List.of("java-none-such")).all().get()));
        create(admin, "java-small", 1, Map.of("max.message.bytes", "1000"));
        create(admin, "java-compact", 1, Map.of("cleanup.policy", "compact"));
        try (var producer = producer(Map.of())) {
            say("too large", refusal(() -> producer.send(new ProducerRecord<>("java-small", "x".repeat(5000))).get()));
            say("no key", refusal(() -> producer.send(new ProducerRecord<>("java-compact", "keyless")).get()));
            say("goes on", producer.send(new ProducerRecord<>("java-compact", "k", "v")).get().offset());
        }
    }

    static void topicsGrowShrinkAndGo(Admin admin) throws Exception {
        var partition = new TopicPartition("java-gzip", 0);
        admin.createPartitions(Map.of("java-gzip", NewPartitions.increaseTo(3))).all().get();
        await("the new partitions", () -> describedPartitions(admin, "java-gzip") == 3);
        var low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(150))).lowWatermarks();
        say("low watermark", low.get(partition).get().lowWatermark());
        say("then reads from", read("java-gzip", COUNT - 150, Map.of()).get(0).offset());
        var dirs = admin.describeLogDirs(admin.describeCluster().nodes().get().stream().map(n -> n.id()).toList());
        boolean found = dirs.allDescriptions().get().values().stream().flatMap(dir -> dir.values().stream())
            .anyMatch(dir -> dir.replicaInfos().containsKey(partition));
        say("log dirs know it", found);
        admin.deleteTopics(List.of("java-gzip")).all().get();
        await("the topic to go", () -> !names(admin).contains("java-gzip"));
        say("listed", names(admin).stream().filter(name -> name.startsWith("java-")).toList());
    }

    static void create(Admin admin, String topic, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
        await(topic + " to be known", () -> describedPartitions(admin, topic) == partitions);
    }

    static int describedPartitions(Admin admin, String topic) {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException | InterruptedException notYet) {
            return -1;
        }
    }

    static Set<String> names(Admin admin) {
        return new TreeSet<>(now(admin.listTopics().names()));
    }

    static String configs(Admin admin, String topic, String... names) {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var config = now(admin.describeConfigs(List.of(resource)).all()).get(resource);
        var shown = new TreeMap<String, String>();
        for (String name : names) shown.put(name, config.get(name).value() + " " + config.get(name).source());
        return shown.toString();
    }

    static KafkaProducer<String, String> producer(Map<String, Object> changes) {
        var settings = new TreeMap<String, Object>(Map.of("bootstrap.servers", address));
        settings.putAll(changes);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, String> changes) {
        var settings = new TreeMap<String, Object>(Map.of("bootstrap.servers", address, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false"));
        settings.putAll(changes);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static void write(String topic, int partitions) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int n = 0; n < COUNT; n++) producer.send(new ProducerRecord<>(topic, n % partitions, "k", "value " + n));
        }
    }

    static List<ConsumerRecord<String, String>> read(String topic, int count, Map<String, String> changes) {
        var seen = new ArrayList<ConsumerRecord<String, String>>();
        try (var consumer = consumer(changes)) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            await(count + " records of " + topic, () -> {
                consumer.poll(Duration.ofMillis(200)).forEach(seen::add);
                return consumer.position(partition) >= end;
            });
        }
        if (seen.size() != count) throw new IllegalStateException(topic + ": " + seen.size() + ", not " + count);
        return seen;
    }

    static ConsumerRecord<String, String> nextOf(KafkaConsumer<String, String> consumer) {
        var seen = new ArrayList<ConsumerRecord<String, String>>();
        await("a record", () -> {
            consumer.poll(Duration.ofMillis(200)).forEach(seen::add);
            return !seen.isEmpty();
        });
        return seen.get(0);
    }

    @SafeVarargs
    static boolean poll(Set<String> seen, KafkaConsumer<String, String>... consumers) {
        for (var consumer : consumers) {
            consumer.poll(Duration.ofMillis(100)).forEach(record -> seen.add(record.partition() + ":" + record.offset()));
        }
        return true;
    }

    static List<Integer> partitions(Collection<TopicPartition> first, Collection<TopicPartition> second) {
        var all = new TreeSet<Integer>();
        first.forEach(partition -> all.add(partition.partition()));
        second.forEach(partition -> all.add(partition.partition()));
        return List.copyOf(all);
    }

    static String digest(List<ConsumerRecord<String, String>> records) throws Exception {
        var sha = MessageDigest.getInstance("SHA-256");
        for (var record : records) {
            var line = new StringBuilder().append(record.offset()).append(record.key()).append(record.value());
            for (Header header : record.headers()) {
                line.append(header.key()).append(header.value() == null ? "null" : new String(header.value()));
            }
            sha.update(line.toString().getBytes(StandardCharsets.UTF_8));
        }
        return HexFormat.of().formatHex(sha.digest(), 0, 8);
    }

    interface Attempt {
        void run() throws Exception;
    }

    /** The name of the error, without the text that goes with it: texts are a broker's own. */
    static String refusal(Attempt attempt) {
        try {
            attempt.run();
        } catch (ExecutionException wrapped) {
            return wrapped.getCause().getClass().getSimpleName();
        } catch (Exception refused) {
            return refused.getClass().getSimpleName();
        }
        return "was accepted";
    }

    static <T> T now(KafkaFuture<T> future) {
        try {
            return future.get();
        } catch (ExecutionException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    static void await(String what, BooleanSupplier condition) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("waited in vain for " + what);
            pause();
        }
    }

    static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    static void say(Object... words) {
        var line = new StringBuilder();
        for (Object word : words) line.append(line.isEmpty() ? "" : " ").append(word);
        System.out.println(line);
    }
}
