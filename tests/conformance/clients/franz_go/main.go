// franz-go. Speaks the protocol of ../protocol.py; built by tests/conformance/provision.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	mark                 = "@@ "
	sessionTimeout       = 6 * time.Second
	staticSessionTimeout = 30 * time.Second
	heartbeatInterval    = time.Second
	idle                 = time.Second
	timeout              = 30 * time.Second
	consumeTimeout       = 60 * time.Second
	txnOffsetCommitKey   = 28
)

type request struct {
	Do              string
	Topic           string
	Topics          []string
	Codec           string
	Keys, Values    []string
	Count           int
	Committed       bool
	Group           string
	Protocol        string
	Instance        string
	ForMs           int `json:"for_ms"`
	Source, Target  string
	TransactionalID string `json:"transactional_id"`
	BatchMax        int    `json:"batch_max"`
	Hold            string
	Abort           bool
	// The number of partitions, or the index of one; this depends on the request.
	Partitions, Partition int32
	Total                 int
	Configs               map[string]string
	Name                  string
	Value                 *string
	Before, Offset        int64
}

var (
	lines  = bufio.NewScanner(os.Stdin)
	codecs = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
)

func say(name string, value any) {
	line, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		panic(err)
	}
	fmt.Println(mark + string(line))
}

func text(value []byte) *string {
	if value == nil {
		return nil
	}
	word := string(value)
	return &word
}

type client struct {
	servers []kgo.Opt
	admin   *kadm.Client

	member     *kgo.Client
	mutex      sync.Mutex
	assignment map[string]map[int32]bool

	session *kgo.GroupTransactSession
	target  string
	hold    string
}

// OnBrokerE2E sees the moment after the transaction's offsets are stored, which is inside the session's End.
func (c *client) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, _ kgo.BrokerE2E) {
	if key == txnOffsetCommitKey {
		c.at("offsets")
		if c.hold == "committing" {
			say("at", "committing")
		}
	}
}

func (c *client) at(step string) {
	if step == c.hold {
		say("at", step)
		lines.Scan()
	}
}

func (c *client) open(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(append(options, kgo.AllowAutoTopicCreation()), c.servers...)...)
}

func (c *client) produce(ctx context.Context, r request) (any, error) {
	some, err := c.open(kgo.ProducerBatchCompression(codecs[r.Codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer some.Close()
	records := make([]*kgo.Record, len(r.Values))
	for number, value := range r.Values {
		records[number] = &kgo.Record{Topic: r.Topic, Value: []byte(value)}
		if r.Keys != nil {
			records[number].Key = []byte(r.Keys[number])
		}
	}
	if err := some.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for number, each := range records {
		offsets[number] = each.Offset
	}
	return offsets, nil
}

func (c *client) consume(_ context.Context, r request) (any, error) {
	isolation := kgo.ReadUncommitted()
	if r.Committed {
		isolation = kgo.ReadCommitted()
	}
	some, err := c.open(kgo.ConsumeTopics(r.Topic), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer some.Close()
	ctx, cancel := context.WithTimeout(context.Background(), consumeTimeout)
	defer cancel()
	read := [][]any{}
	for len(read) < r.Count && ctx.Err() == nil {
		some.PollFetches(ctx).EachRecord(func(each *kgo.Record) {
			read = append(read, []any{each.Partition, each.Offset, text(each.Key), text(each.Value)})
		})
	}
	return read, nil
}

func (c *client) note(isAssigned bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		for topic, partitions := range changed {
			for _, partition := range partitions {
				if c.assignment[topic] == nil {
					c.assignment[topic] = map[int32]bool{}
				}
				if isAssigned {
					c.assignment[topic][partition] = true
				} else {
					delete(c.assignment[topic], partition)
				}
			}
		}
	}
}

func (c *client) join(_ context.Context, r request) (any, error) {
	c.assignment = map[string]map[int32]bool{}
	options := []kgo.Opt{
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(c.note(true)), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.note(false)),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeatInterval),
	}
	if r.Instance != "" {
		options = append(options, kgo.InstanceID(r.Instance), kgo.SessionTimeout(staticSessionTimeout))
	}
	if r.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	member, err := c.open(options...)
	c.member = member
	return nil, err
}

// revoked commits the offsets of polled records, as the library's documentation asks of this callback.
func (c *client) revoked(ctx context.Context, member *kgo.Client, changed map[string][]int32) {
	if err := member.CommitUncommittedOffsets(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "commit on revocation:", err)
	}
	c.note(false)(ctx, member, changed)
}

func (c *client) poll(_ context.Context, r request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.ForMs)*time.Millisecond)
	defer cancel()
	records := [][]any{}
	for ctx.Err() == nil {
		c.member.PollFetches(ctx).EachRecord(func(each *kgo.Record) {
			records = append(records, []any{each.Partition, each.Offset, text(each.Value)})
		})
	}
	assignment := [][]any{}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for topic, partitions := range c.assignment {
		for partition := range partitions {
			assignment = append(assignment, []any{topic, partition})
		}
	}
	return map[string]any{"records": records, "assignment": assignment}, nil
}

func (c *client) leave(ctx context.Context, _ request) (any, error) {
	err := c.member.CommitUncommittedOffsets(ctx)
	c.member.Close()
	return nil, err
}

func (c *client) transformStart(ctx context.Context, r request) (any, error) {
	c.target = r.Target
	session, err := kgo.NewGroupTransactSession(append([]kgo.Opt{
		kgo.WithHooks(c), kgo.TransactionalID(r.TransactionalID),
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeatInterval),
	}, c.servers...)...)
	if err != nil {
		return nil, err
	}
	c.session = session
	_, _, err = session.Client().ProducerID(ctx) // initializes the transactional id now
	return nil, err
}

func (c *client) transformOnce(ctx context.Context, r request) (any, error) {
	c.hold = r.Hold
	waiting, cancel := context.WithTimeout(context.Background(), idle)
	defer cancel()
	records := c.session.PollRecords(waiting, r.BatchMax).Records()
	if len(records) == 0 {
		return 0, nil
	}
	if err := c.session.Begin(); err != nil {
		return nil, err
	}
	c.at("begun")
	for _, each := range records {
		changed := &kgo.Record{Topic: c.target, Partition: each.Partition, Value: append(each.Value, '\'')}
		if err := c.session.ProduceSync(ctx, changed).FirstErr(); err != nil {
			return nil, err
		}
	}
	c.at("sent")
	isCommitted, err := c.session.End(ctx, kgo.TransactionEndTry(!r.Abort))
	if err != nil {
		return nil, err
	}
	if !isCommitted && r.Hold != "" {
		return nil, errors.New("not committed: fenced, or the group changed")
	}
	c.at("committed")
	return len(records), nil
}

func (c *client) createTopic(ctx context.Context, r request) (any, error) {
	configs := map[string]*string{}
	for name, value := range r.Configs {
		configs[name] = &value
	}
	_, err := c.admin.CreateTopic(ctx, r.Partitions, 1, configs, r.Topic)
	return nil, err
}

func (c *client) listTopics(ctx context.Context, _ request) (any, error) {
	topics, err := c.admin.ListTopics(ctx)
	return topics.Names(), err
}

func (c *client) describeTopic(ctx context.Context, r request) (any, error) {
	topics, err := c.admin.ListTopics(ctx, r.Topic)
	if err == nil {
		err = topics[r.Topic].Err
	}
	return map[string]any{"partitions": len(topics[r.Topic].Partitions)}, err
}

func (c *client) addPartitions(ctx context.Context, r request) (any, error) {
	answers, err := c.admin.UpdatePartitions(ctx, r.Total, r.Topic)
	if err == nil {
		err = answers.Error()
	}
	return nil, err
}

func (c *client) deleteTopic(ctx context.Context, r request) (any, error) {
	_, err := c.admin.DeleteTopic(ctx, r.Topic)
	return nil, err
}

func (c *client) describeConfigs(ctx context.Context, r request) (any, error) {
	resources, err := c.admin.DescribeTopicConfigs(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := resources.On(r.Topic, nil)
	configs := map[string]*string{}
	for _, each := range resource.Configs {
		configs[each.Key] = each.Value
	}
	return configs, err
}

func (c *client) alterConfig(ctx context.Context, r request) (any, error) {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: r.Name, Value: r.Value}
	if r.Value == nil {
		change.Op = kadm.DeleteConfig
	}
	answers, err := c.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, r.Topic)
	for _, each := range answers {
		if err == nil {
			err = each.Err
		}
	}
	return nil, err
}

func (c *client) listOffsets(ctx context.Context, r request) (any, error) {
	first, err := c.admin.ListStartOffsets(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	last, err := c.admin.ListEndOffsets(ctx, r.Topic)
	found := map[string][]int64{}
	for partition, each := range first[r.Topic] {
		found[strconv.Itoa(int(partition))] = []int64{each.Offset, last[r.Topic][partition].Offset}
	}
	return found, err
}

func offsets(r request, offset int64) kadm.Offsets {
	return kadm.OffsetsFromRecords(kgo.Record{Topic: r.Topic, Partition: r.Partition, Offset: offset - 1, LeaderEpoch: -1})
}

func (c *client) deleteRecords(ctx context.Context, r request) (any, error) {
	answers, err := c.admin.DeleteRecords(ctx, offsets(r, r.Before))
	if err == nil {
		err = answers.Error()
	}
	return nil, err
}

func (c *client) listGroups(ctx context.Context, _ request) (any, error) {
	groups, err := c.admin.ListGroups(ctx)
	return groups.Groups(), err
}

func (c *client) describeGroup(ctx context.Context, r request) (any, error) {
	groups, err := c.admin.DescribeGroups(ctx, r.Group)
	group := groups[r.Group]
	if err == nil {
		err = group.Err
	}
	return map[string]any{"state": strings.ToUpper(group.State), "members": len(group.Members)}, err
}

func (c *client) groupOffsets(ctx context.Context, r request) (any, error) {
	answers, err := c.admin.FetchOffsets(ctx, r.Group)
	found := map[string]int64{}
	for partition, each := range answers[r.Topic] {
		if each.At >= 0 {
			found[strconv.Itoa(int(partition))] = each.At
		}
	}
	return found, err
}

func (c *client) setGroupOffset(ctx context.Context, r request) (any, error) {
	answers, err := c.admin.CommitOffsets(ctx, r.Group, offsets(r, r.Offset))
	if err == nil {
		err = answers.Error()
	}
	return nil, err
}

func (c *client) deleteGroupOffset(ctx context.Context, r request) (any, error) {
	gone := kadm.TopicsSet{}
	gone.Add(r.Topic, r.Partition)
	answers, err := c.admin.DeleteOffsets(ctx, r.Group, gone)
	if err == nil {
		err = answers.Error()
	}
	return nil, err
}

func (c *client) deleteGroup(ctx context.Context, r request) (any, error) {
	_, err := c.admin.DeleteGroup(ctx, r.Group)
	return nil, err
}

func (c *client) operations() map[string]func(context.Context, request) (any, error) {
	return map[string]func(context.Context, request) (any, error){
		"produce": c.produce, "consume": c.consume, "join": c.join, "poll": c.poll, "leave": c.leave,
		"transform_start": c.transformStart, "transform_once": c.transformOnce,
		"create_topic": c.createTopic, "list_topics": c.listTopics, "describe_topic": c.describeTopic,
		"add_partitions": c.addPartitions, "delete_topic": c.deleteTopic, "describe_configs": c.describeConfigs,
		"alter_config": c.alterConfig, "list_offsets": c.listOffsets, "delete_records": c.deleteRecords,
		"list_groups": c.listGroups, "describe_group": c.describeGroup, "group_offsets": c.groupOffsets,
		"set_group_offset": c.setGroupOffset, "delete_group_offset": c.deleteGroupOffset, "delete_group": c.deleteGroup,
	}
}

func version() string {
	built, _ := debug.ReadBuildInfo()
	for _, each := range built.Deps {
		if each.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(each.Version, "v")
		}
	}
	return "unknown"
}

func main() {
	c := &client{servers: []kgo.Opt{kgo.SeedBrokers(os.Args[1])}}
	if len(os.Args) > 2 {
		login, err := readLogin(os.Args[2])
		if err != nil {
			panic(err)
		}
		c.servers = append(c.servers, login...)
	}
	some, err := c.open()
	if err != nil {
		panic(err)
	}
	c.admin = kadm.NewClient(some)
	names := []string{}
	for name := range codecs {
		names = append(names, name)
	}
	sort.Strings(names)
	say("hello", map[string]any{"client": "franz-go", "version": version(), "library": "", "codecs": names})
	lines.Buffer(nil, 1<<24)
	operations := c.operations()
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		operation := operations[r.Do]
		if operation == nil {
			say("not_offered", r.Do)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		value, err := operation(ctx, r)
		cancel()
		if err != nil {
			say("error", err.Error())
		} else {
			say("ok", value)
		}
	}
}
