// The story of franz-go, told to the broker whose address is the argument. Every line it prints is a fact that must not
// depend on which broker that is: no ids, no times. It ends with exit code 1 when the broker does not do its part.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	count    = 200
	patience = 60 * time.Second
	past     = 1_700_000_000_000
)

var address string

func main() {
	address = os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	client := open()
	defer client.Close()
	admin := kadm.NewClient(client)
	topicsAreMadeAndDescribed(ctx, admin)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		whatIsWrittenIsRead(ctx, admin, name, codecs[name])
	}
	anIdempotentProducerIsKnown(ctx, admin)
	positionsAreFound(ctx, admin)
	aGroupGoesOnWhereItStopped(ctx, admin)
	for _, balancer := range []kgo.GroupBalancer{kgo.CooperativeStickyBalancer(), kgo.RoundRobinBalancer()} {
		aGroupSharesAndTakesOver(ctx, admin, balancer)
	}
	transactionsCommitAndAbort(ctx, admin)
	badInputIsRefused(ctx, admin)
	topicsGrowShrinkAndGo(ctx, admin)
	fmt.Println("end reached")
}

func topicsAreMadeAndDescribed(ctx context.Context, admin *kadm.Client) {
	compact, size := "compact", "65536"
	create(ctx, admin, "go-admin", 3, map[string]*string{"cleanup.policy": &compact, "max.message.bytes": &size})
	details := must(admin.ListTopics(ctx, "go-admin"))["go-admin"]
	fmt.Println("topic", details.Topic, "internal", details.IsInternal, "has an id", details.ID != kadm.TopicID{})
	for _, partition := range details.Partitions.Sorted() {
		fmt.Println("partition", partition.Partition, "replicas", len(partition.Replicas), "in sync", len(partition.ISR))
	}
	metadata := must(admin.Metadata(ctx))
	fmt.Println("cluster of", len(metadata.Brokers), "named", metadata.Cluster != "", "controlled", metadata.Controller >= 0)
	fmt.Println("configs", configs(ctx, admin, "go-admin"))
	retention := "60000"
	altered := must(admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: &retention},
		{Op: kadm.DeleteConfig, Name: "max.message.bytes"},
	}, "go-admin"))
	check(altered[0].Err)
	await("the altered configs", func() bool { return strings.Contains(configs(ctx, admin, "go-admin"), "retention.ms=60000") })
	fmt.Println("altered", configs(ctx, admin, "go-admin"))
}

func whatIsWrittenIsRead(ctx context.Context, admin *kadm.Client, name string, codec kgo.CompressionCodec) {
	topic, forever := "go-"+name, "-1"
	// The records are dated in the past, where retention would soon find them.
	create(ctx, admin, topic, 1, map[string]*string{"retention.ms": &forever})
	producer := open(kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	var records []*kgo.Record
	for n := range count {
		record := &kgo.Record{
			Topic: topic, Timestamp: time.UnixMilli(past + int64(n)), Value: []byte(strings.Repeat(fmt.Sprintf("value %d ", n), 5)),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: fmt.Appendf(nil, "t%d", n)}, {Key: "trace", Value: nil}},
		}
		if n%7 != 0 {
			record.Key = fmt.Appendf(nil, "key %d", n%10)
		}
		if n%11 == 0 {
			record.Value = nil
		}
		records = append(records, record)
	}
	results := producer.ProduceSync(ctx, records...)
	check(results.FirstErr())
	fmt.Println(name, "written", results[0].Record.Offset, "to", results[count-1].Record.Offset)
	seen := read(ctx, topic, 0, count)
	fmt.Println(name, "read", len(seen), "digest", digest(seen))
}

func anIdempotentProducerIsKnown(ctx context.Context, admin *kadm.Client) {
	create(ctx, admin, "go-idempotent", 1, nil)
	producer := open(kgo.ProducerBatchMaxBytes(1024), kgo.DefaultProduceTopic("go-idempotent"))
	defer producer.Close()
	for n := range count {
		producer.Produce(ctx, kgo.StringRecord(fmt.Sprint("value ", n)), func(_ *kgo.Record, err error) { check(err) })
	}
	check(producer.Flush(ctx))
	described := must(admin.DescribeProducers(ctx, kadm.TopicsSet{"go-idempotent": {0: {}}}))
	described.EachProducer(func(producer kadm.DescribedProducer) {
		fmt.Println("producer of epoch", producer.ProducerEpoch, "last sequence", producer.LastSequence)
	})
	fmt.Println("idempotent digest", digest(read(ctx, "go-idempotent", 0, count)))
}

func positionsAreFound(ctx context.Context, admin *kadm.Client) {
	starts, ends := must(admin.ListStartOffsets(ctx, "go-none")), must(admin.ListEndOffsets(ctx, "go-none"))
	fmt.Println("begins", starts["go-none"][0].Offset, "ends", ends["go-none"][0].Offset)
	for _, offset := range []int64{150, 3, count - 1} {
		fmt.Println("seek", offset, "gives", read(ctx, "go-none", offset, 1)[0].Offset)
	}
	for _, ms := range []int64{0, past + 100, past + 1_000_000} {
		found := must(admin.ListOffsetsAfterMilli(ctx, ms, "go-none"))["go-none"][0]
		fmt.Println("time", ms, "is at", found.Offset)
	}
	greatest := must(admin.ListMaxTimestampOffsets(ctx, "go-none"))["go-none"][0]
	fmt.Println("greatest time", greatest.Timestamp, "at", greatest.Offset)
}

func aGroupGoesOnWhereItStopped(ctx context.Context, admin *kadm.Client) {
	for life := range 3 {
		member := open(kgo.ConsumerGroup("go-resume"), kgo.ConsumeTopics("go-none"), kgo.DisableAutoCommit())
		records := member.PollRecords(ctx, 40)
		check(records.Err())
		all := records.Records()
		fmt.Println("life", life, "begins at", all[0].Offset)
		if life == 0 {
			check(member.CommitRecords(ctx, all[len(all)-1]))
			fmt.Println("committed", must(admin.FetchOffsets(ctx, "go-resume"))["go-none"][0].At)
		}
		member.Close()
		if life == 1 {
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: "go-none", Partition: 0, At: 7, LeaderEpoch: -1, Metadata: "seven"})
			check(admin.CommitAllOffsets(ctx, "go-resume", offsets))
			found := must(admin.FetchOffsets(ctx, "go-resume"))["go-none"][0]
			fmt.Println("admin committed", found.At, found.Metadata)
		}
	}
	await("the group to empty", func() bool { return must(admin.DescribeGroups(ctx, "go-resume"))["go-resume"].State == "Empty" })
	check(must(admin.DeleteGroups(ctx, "go-resume"))["go-resume"].Err)
	_, listed := must(admin.ListGroups(ctx))["go-resume"]
	fmt.Println("group listed after deletion", listed)
}

func aGroupSharesAndTakesOver(ctx context.Context, admin *kadm.Client, balancer kgo.GroupBalancer) {
	topic, group := "go-"+balancer.ProtocolName(), "go-group-"+balancer.ProtocolName()
	create(ctx, admin, topic, 4, nil)
	write(ctx, topic)
	seen := map[string]bool{}
	member := func() *kgo.Client {
		return open(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(balancer),
			kgo.HeartbeatInterval(300*time.Millisecond), kgo.DisableAutoCommit())
	}
	poll := func(members ...*kgo.Client) {
		for _, member := range members {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			member.PollFetches(short).EachRecord(func(r *kgo.Record) { seen[fmt.Sprint(r.Partition, ":", r.Offset)] = true })
			cancel()
		}
	}
	shares := func() string {
		var sizes []string
		described := must(admin.DescribeGroups(ctx, group))[group]
		for _, member := range described.Members {
			assigned, _ := member.Assigned.AsConsumer()
			total := 0
			if assigned != nil {
				for _, topic := range assigned.Topics {
					total += len(topic.Partitions)
				}
			}
			sizes = append(sizes, fmt.Sprint(total))
		}
		return fmt.Sprint(described.State, " ", described.Protocol, " ", strings.Join(sizes, "+"))
	}
	first, second := member(), (*kgo.Client)(nil)
	await("all partitions for one", func() bool { poll(first); return strings.HasSuffix(shares(), " 4") })
	fmt.Println("alone", shares())
	second = member()
	await("two for each", func() bool { poll(first, second); return strings.HasSuffix(shares(), " 2+2") })
	fmt.Println("together", shares())
	second.Close()
	await("one takes over", func() bool { poll(first); return strings.HasSuffix(shares(), " 4") })
	write(ctx, topic)
	await("all is read", func() bool { poll(first); return len(seen) == 2*count })
	check(first.CommitUncommittedOffsets(ctx))
	first.Close()
	await("the group to empty", func() bool { return strings.HasPrefix(shares(), "Empty") })
	total := int64(0)
	must(admin.FetchOffsets(ctx, group)).Each(func(offset kadm.OffsetResponse) { total += offset.At })
	fmt.Println("one took over and has read", len(seen), "committed in all", total)
}

func transactionsCommitAndAbort(ctx context.Context, admin *kadm.Client) {
	create(ctx, admin, "go-transactions", 1, nil)
	producer := open(kgo.TransactionalID("go-writer"), kgo.DefaultProduceTopic("go-transactions"))
	defer producer.Close()
	for round := range 4 {
		check(producer.BeginTransaction())
		for n := range 5 {
			check(producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprintf("%d.%d", round, n))).FirstErr())
		}
		check(producer.EndTransaction(ctx, kgo.TransactionEndTry(round%2 == 1)))
	}
	for _, level := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} {
		var values []string
		expected := 10
		if level == kgo.ReadUncommitted() {
			expected = 20
		}
		for _, record := range read(ctx, "go-transactions", 0, expected, kgo.FetchIsolationLevel(level)) {
			values = append(values, string(record.Value))
		}
		fmt.Println("isolated", expected, values)
	}
	state := must(admin.DescribeTransactions(ctx, "go-writer"))["go-writer"]
	fmt.Println("transaction is", state.State, "topics", len(state.Topics))
}

func badInputIsRefused(ctx context.Context, admin *kadm.Client) {
	odd := "1"
	make := func(name string, partitions int32, configs map[string]*string) error {
		response, err := admin.CreateTopic(ctx, partitions, 1, configs, name)
		return errors.Join(err, response.Err)
	}
	fmt.Println("create again", name(make("go-none", 1, nil)))
	fmt.Println("illegal name", name(make("no spaces", 1, nil)))
	fmt.Println("no partitions", name(make("go-zero", 0, nil)))
	fmt.Println("unknown config", name(make("go-odd", 1, map[string]*string{"no.such.config": &odd})))
	deleted := must(admin.DeleteTopics(ctx, "go-none-such"))
	fmt.Println("delete unknown", name(deleted["go-none-such"].Err))
	fmt.Println("fewer partitions", name(must(admin.UpdatePartitions(ctx, 2, "go-roundrobin"))["go-roundrobin"].Err))
	small := "1000"
	create(ctx, admin, "go-small", 1, map[string]*string{"max.message.bytes": &small})
	producer := open(kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	large := &kgo.Record{Topic: "go-small", Value: []byte(strings.Repeat("x", 5000))}
	fmt.Println("too large", name(producer.ProduceSync(ctx, large).FirstErr()))
	fmt.Println("goes on", name(producer.ProduceSync(ctx, &kgo.Record{Topic: "go-small", Value: []byte("x")}).FirstErr()))
	fmt.Println("unknown topic", name(producer.ProduceSync(ctx, &kgo.Record{Topic: "go-none-such", Value: []byte("x")}).FirstErr()))
}

func topicsGrowShrinkAndGo(ctx context.Context, admin *kadm.Client) {
	check(must(admin.UpdatePartitions(ctx, 3, "go-gzip"))["go-gzip"].Err)
	await("the new partitions", func() bool { return len(must(admin.ListTopics(ctx, "go-gzip"))["go-gzip"].Partitions) == 3 })
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "go-gzip", Partition: 0, At: 150})
	fmt.Println("low watermark", must(admin.DeleteRecords(ctx, offsets))["go-gzip"][0].LowWatermark)
	fmt.Println("then reads from", read(ctx, "go-gzip", 150, 50)[0].Offset)
	dirs := must(admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{"go-gzip": {0: {}}}))
	dirs.Each(func(dir kadm.DescribedLogDir) { fmt.Println("log dirs know it", len(dir.Topics["go-gzip"]) > 0) })
	check(must(admin.DeleteTopics(ctx, "go-gzip"))["go-gzip"].Err)
	await("the topic to go", func() bool { return !strings.Contains(listed(ctx), "go-gzip") })
	fmt.Println("listed", listed(ctx))
}

func open(options ...kgo.Opt) *kgo.Client {
	return must(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address)}, options...)...))
}

func create(ctx context.Context, admin *kadm.Client, topic string, partitions int32, configs map[string]*string) {
	response := must(admin.CreateTopic(ctx, partitions, 1, configs, topic))
	check(response.Err)
	await(topic, func() bool { return len(must(admin.ListTopics(ctx, topic))[topic].Partitions) == int(partitions) })
}

// listed asks with a client of its own, since a client remembers topics that it has seen.
func listed(ctx context.Context) string {
	client := open()
	defer client.Close()
	var names []string
	for _, name := range must(kadm.NewClient(client).ListTopics(ctx)).Names() {
		if strings.HasPrefix(name, "go-") {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func configs(ctx context.Context, admin *kadm.Client, topic string) string {
	var shown []string
	for _, config := range must(admin.DescribeTopicConfigs(ctx, topic))[0].Configs {
		switch config.Key {
		case "cleanup.policy", "max.message.bytes", "retention.ms":
			shown = append(shown, fmt.Sprint(config.Key, "=", config.MaybeValue(), " ", config.Source))
		}
	}
	sort.Strings(shown)
	return strings.Join(shown, ", ")
}

func write(ctx context.Context, topic string) {
	producer := open(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	for n := range count {
		producer.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(n % 4), Value: fmt.Appendf(nil, "value %d", n)},
			func(_ *kgo.Record, err error) { check(err) })
	}
	check(producer.Flush(ctx))
}

func read(ctx context.Context, topic string, from int64, wanted int, options ...kgo.Opt) []*kgo.Record {
	at := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}
	consumer := open(append(options, kgo.ConsumePartitions(at))...)
	defer consumer.Close()
	var seen []*kgo.Record
	for len(seen) < wanted {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		seen = append(seen, fetches.Records()...)
	}
	return seen
}

func digest(records []*kgo.Record) string {
	sum := sha256.New()
	for _, record := range records {
		fmt.Fprint(sum, record.Offset, record.Key, record.Value, record.Key == nil, record.Value == nil, record.Timestamp.UnixMilli() < past*2)
		for _, header := range record.Headers {
			fmt.Fprint(sum, header.Key, header.Value, header.Value == nil)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// name is the protocol's name of an error, without the text that goes with it: texts are a broker's own.
func name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	if err == nil {
		return "was accepted"
	}
	return err.Error()
}

func await(what string, condition func() bool) {
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			check(fmt.Errorf("waited in vain for %s", what))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		panic(err)
	}
}
