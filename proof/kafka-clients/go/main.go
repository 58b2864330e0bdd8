// Scenarios of franz-go: `client SCENARIO ADDRESS`. Each fails with a message, or says nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeLimit = 90 * time.Second

type scenario func(context.Context, broker) error

var scenarios = map[string]scenario{
	"produce":     produce,
	"groups":      func(ctx context.Context, it broker) error { return groups(ctx, it) },
	"groups-next": func(ctx context.Context, it broker) error { return groups(ctx, it, kgo.ServerSideBalancer()) },
	"transform":   transform,
	"admin":       admin,
}

func main() {
	run, isThere := scenarios[os.Args[1]]
	if !isThere {
		fmt.Fprintln(os.Stderr, "no scenario is called", os.Args[1])
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	if err := run(ctx, broker{address: os.Args[2]}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type broker struct{ address string }

func (b broker) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.address)}, options...)...)
}

// topic makes one of this name and something that no other has.
func (b broker) topic(ctx context.Context, name string, partitions int32) (string, error) {
	client, err := b.client()
	if err != nil {
		return "", err
	}
	defer client.Close()
	topic := unique(name)
	made, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic)
	return topic, errors.Join(err, made.Err)
}

func unique(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

func numbered(label string, count int) []string {
	var values []string
	for index := range count {
		values = append(values, fmt.Sprintf("%s-%d", label, index))
	}
	return values
}

func equal[T comparable](found, expected []T, what string) error {
	if slices.Equal(found, expected) {
		return nil
	}
	for index := range min(len(found), len(expected)) {
		if found[index] != expected[index] {
			return fmt.Errorf("%s at %d: %v is not %v", what, index, found[index], expected[index])
		}
	}
	return fmt.Errorf("%s: %d found, %d expected", what, len(found), len(expected))
}

// write produces the values to one partition and waits for all.
func write(ctx context.Context, client *kgo.Client, topic string, partition int32, values []string) error {
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// read returns all committed records of one partition, up to its last stable offset.
func (b broker) read(ctx context.Context, topic string, partition int32) ([]string, error) {
	places := map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}
	client, err := b.client(
		kgo.ConsumePartitions(places),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(topic, partition)
	var found []string
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			next = record.Offset + 1
			if !record.Attrs.IsControl() {
				found = append(found, string(record.Value))
			}
		}
	}
	return found, nil
}

// produce: each codec, idempotent as by default, several partitions.
func produce(ctx context.Context, b broker) error {
	const partitions, count = 3, 500
	topic, err := b.topic(ctx, "go-produce", partitions)
	if err != nil {
		return err
	}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(),
		kgo.ZstdCompression(),
	}
	expected := make([][]string, partitions)
	for index, codec := range codecs {
		client, err := b.client(
			kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return err
		}
		for partition := range int32(partitions) {
			values := numbered(fmt.Sprintf("%d/%d", index, partition), count)
			if err := write(ctx, client, topic, partition, values); err != nil {
				return err
			}
			expected[partition] = append(expected[partition], values...)
		}
		client.Close()
	}
	for partition := range int32(partitions) {
		found, err := b.read(ctx, topic, partition)
		if err != nil {
			return err
		}
		if err := equal(found, expected[partition], "records"); err != nil {
			return err
		}
	}
	return nil
}

// member is one of a group. It commits what it has before it gives partitions up.
type member struct {
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan struct{}
	// tally is shared by all members, and its lock guards owned too.
	tally *tally
	owned map[int32]bool
}

// tally counts how often each value was seen.
type tally struct {
	lock     sync.Mutex
	seen     map[string]int
	failures []error
}

func (t *tally) wait(ctx context.Context, condition func() bool, waitsFor string) error {
	for {
		t.lock.Lock()
		isMet, failed := condition(), errors.Join(t.failures...)
		t.lock.Unlock()
		if isMet || failed != nil {
			return failed
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waited too long for %s", waitsFor)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b broker) join(ctx context.Context, group, topic string, shared *tally, options []kgo.Opt) (*member, error) {
	joined := &member{ended: make(chan struct{}), tally: shared, owned: map[int32]bool{}}
	client, err := b.client(append(slices.Clone(options),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			joined.own(given, true)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, it *kgo.Client, taken map[string][]int32) {
			joined.fail(it.CommitUncommittedOffsets(ctx))
			joined.own(taken, false)
		}))...)
	if err != nil {
		return nil, err
	}
	joined.client = client
	until, stop := context.WithCancel(ctx)
	joined.stop = stop
	go joined.run(ctx, until)
	return joined, nil
}

func (m *member) run(ctx, until context.Context) {
	defer close(m.ended)
	for until.Err() == nil {
		fetches := m.client.PollFetches(until)
		m.tally.lock.Lock()
		fetches.EachRecord(func(it *kgo.Record) { m.tally.seen[string(it.Value)]++ })
		m.tally.lock.Unlock()
		m.client.AllowRebalance()
	}
	m.fail(m.client.CommitUncommittedOffsets(ctx))
	m.client.CloseAllowingRebalance()
}

func (m *member) leave() {
	m.stop()
	<-m.ended
}

func (m *member) own(partitions map[string][]int32, isGiven bool) {
	m.tally.lock.Lock()
	defer m.tally.lock.Unlock()
	for _, partitions := range partitions {
		for _, partition := range partitions {
			if isGiven {
				m.owned[partition] = true
			} else {
				delete(m.owned, partition)
			}
		}
	}
}

func (m *member) fail(err error) {
	m.tally.lock.Lock()
	defer m.tally.lock.Unlock()
	if err != nil {
		m.tally.failures = append(m.tally.failures, err)
	}
}

// groups: a second member joins while records are read, and leaves again; each is seen once.
func groups(ctx context.Context, b broker, options ...kgo.Opt) error {
	const partitions, count = 4, 200
	topic, err := b.topic(ctx, "go-group", partitions)
	if err != nil {
		return err
	}
	producer, err := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	group, shared := unique("go-group"), &tally{seen: map[string]int{}}
	var members []*member
	defer func() {
		for _, member := range members {
			member.stop()
		}
	}()
	for round, memberCount := range []int{1, 2, 1} {
		if memberCount < len(members) {
			members[0].leave()
			members = members[1:]
		} else {
			joined, err := b.join(ctx, group, topic, shared, options)
			if err != nil {
				return err
			}
			members = append(members, joined)
		}
		haveShares := func() bool {
			return !slices.ContainsFunc(members, func(it *member) bool {
				return len(it.owned) != partitions/memberCount
			})
		}
		if err := shared.wait(ctx, haveShares, "a share for each member"); err != nil {
			return err
		}
		for partition := range int32(partitions) {
			values := numbered(fmt.Sprintf("%d/%d", round, partition), count)
			if err := write(ctx, producer, topic, partition, values); err != nil {
				return err
			}
		}
		haveSeenAll := func() bool { return len(shared.seen) == (round+1)*partitions*count }
		if err := shared.wait(ctx, haveSeenAll, "all records"); err != nil {
			return err
		}
	}
	members[0].leave()
	for value, times := range shared.seen {
		if times != 1 {
			shared.failures = append(shared.failures, fmt.Errorf("%s was seen %d times", value, times))
		}
	}
	return errors.Join(shared.failures...)
}

// transform: records are read, written and committed in transactions, every third of which is
// aborted.
func transform(ctx context.Context, b broker) error {
	const count = 300
	source, err := b.topic(ctx, "go-source", 1)
	if err != nil {
		return err
	}
	target, err := b.topic(ctx, "go-target", 1)
	if err != nil {
		return err
	}
	producer, err := b.client()
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := write(ctx, producer, source, 0, numbered("in", count)); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(b.address), kgo.TransactionalID(unique("go-transform")),
		kgo.ConsumerGroup(unique("go-transform")), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())
	if err != nil {
		return err
	}
	defer session.Close()
	for round, done := 0, 0; done < count; round++ {
		fetches := session.PollRecords(ctx, 40)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			value := append([]byte("out of "), record.Value...)
			session.Produce(ctx, &kgo.Record{Topic: target, Value: value}, nil)
		}
		wish := kgo.TryCommit
		if round%3 == 1 {
			wish = kgo.TryAbort
		}
		committed, err := session.End(ctx, wish)
		if err != nil {
			return err
		}
		if committed != bool(wish) {
			return fmt.Errorf("the end of transaction %d was not as asked for", round)
		}
		if committed {
			done += fetches.NumRecords()
		}
	}
	found, err := b.read(ctx, target, 0)
	if err != nil {
		return err
	}
	var expected []string
	for _, value := range numbered("in", count) {
		expected = append(expected, "out of "+value)
	}
	return equal(found, expected, "outputs")
}

// admin: topics, settings, offsets, groups and records by kadm.
func admin(ctx context.Context, b broker) error {
	topic, err := b.topic(ctx, "go-admin", 2)
	if err != nil {
		return err
	}
	client, err := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if again, err := admin.CreateTopic(ctx, 2, 1, nil, topic); !errors.Is(errors.Join(err, again.Err), kerr.TopicAlreadyExists) {
		return fmt.Errorf("a topic that is there was made again: %v", err)
	}
	if err := write(ctx, client, topic, 0, numbered("r", 100)); err != nil {
		return err
	}
	value := "60000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, topic)
	if err := errors.Join(err, firstErr(altered)); err != nil {
		return err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	config, err := configs.On(topic, nil)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(config.Configs, func(it kadm.Config) bool { return it.Key == "retention.ms" })
	if at < 0 || config.Configs[at].MaybeValue() != value {
		return fmt.Errorf("retention.ms is not %s", value)
	}
	group := unique("go-admin")
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 70, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return err
	}
	lags, err := admin.Lag(ctx, group)
	if err != nil {
		return err
	}
	if lag := lags[group].Lag.Total(); lag != 30 {
		return fmt.Errorf("the group lags %d behind, not 30", lag)
	}
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: topic, Partition: 0, At: 60, LeaderEpoch: -1})
	if _, err := admin.DeleteRecords(ctx, before); err != nil {
		return err
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if start, _ := starts.Lookup(topic, 0); start.Offset != 60 {
		return fmt.Errorf("the log starts at %d, not 60", start.Offset)
	}
	if deleted, err := admin.DeleteGroup(ctx, group); errors.Join(err, deleted.Err) != nil {
		return errors.Join(err, deleted.Err)
	}
	deleted, err := admin.DeleteTopics(ctx, topic)
	return errors.Join(err, deleted.Error())
}

func firstErr(responses kadm.AlterConfigsResponses) error {
	for _, response := range responses {
		if response.Err != nil {
			return response.Err
		}
	}
	return nil
}
