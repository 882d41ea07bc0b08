// Three NodeHosts of Dragonboat in one process, over loopback, and the callers that load them.
//
// A line of JSON on standard input is one window to measure, a line on standard output its result
// (bench/peers/program.py has the form). Callers run in this process, beside the leader of their
// shard, so there is no RPC between a caller and its NodeHost. A proposal is acked when it is
// committed and applied; the log engine syncs what it writes before it says so.
//
// Hosts are made anew, in an empty folder, when another number of shards is wanted: shards that
// nobody asked for would cost ticks.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/statemachine"
)

const (
	rttMs        = 100
	electionRTT  = 10
	heartbeatRTT = 1
	timeout      = 30 * time.Second
)

type command struct {
	Callers int     `json:"callers"`
	Size    int     `json:"size"`
	Shards  int     `json:"shards"`
	Warmup  float64 `json:"warmup_s"`
	Seconds float64 `json:"seconds"`
}

type result struct {
	Records     int         `json:"records"`
	Seconds     float64     `json:"seconds"`
	LatenciesUs map[int]int `json:"latencies_us"`
}

// counter is the whole state of a shard: how many records it was given, and of how many bytes.
type counter struct {
	Records uint64
	Bytes   uint64
}

type machine struct{ counted counter }

func (m *machine) Update(entry statemachine.Entry) (statemachine.Result, error) {
	m.counted.Records++
	m.counted.Bytes += uint64(len(entry.Cmd))
	return statemachine.Result{Value: m.counted.Records}, nil
}

func (m *machine) Lookup(any) (any, error) { return m.counted, nil }

func (m *machine) SaveSnapshot(
	writer io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{},
) error {
	return json.NewEncoder(writer).Encode(m.counted)
}

func (m *machine) RecoverFromSnapshot(
	reader io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{},
) error {
	return json.NewDecoder(reader).Decode(&m.counted)
}

func (m *machine) Close() error { return nil }

// world is three hosts with the same shards, and what they have acked since they were made.
type world struct {
	hosts  []*dragonboat.NodeHost
	leader []*dragonboat.NodeHost
	acked  []counter
}

func newWorld(engine, directory string, addresses []string, shards int) (*world, error) {
	made := &world{acked: make([]counter, shards)}
	members := map[uint64]dragonboat.Target{}
	for number, address := range addresses {
		members[uint64(number+1)] = address
	}
	for number, address := range addresses {
		expert := config.GetDefaultExpertConfig()
		if engine == "tan" {
			expert.LogDBFactory = tan.Factory
		}
		host, err := dragonboat.NewNodeHost(config.NodeHostConfig{
			NodeHostDir:    filepath.Join(directory, fmt.Sprint(number)),
			RTTMillisecond: rttMs,
			RaftAddress:    address,
			Expert:         expert,
		})
		if err != nil {
			made.close()
			return nil, err
		}
		made.hosts = append(made.hosts, host)
		for shard := range shards {
			err := host.StartReplica(
				members, false,
				func(uint64, uint64) statemachine.IStateMachine { return &machine{} },
				config.Config{
					ReplicaID:    uint64(number + 1),
					ShardID:      uint64(shard + 1),
					CheckQuorum:  true,
					PreVote:      true,
					ElectionRTT:  electionRTT,
					HeartbeatRTT: heartbeatRTT,
				},
			)
			if err != nil {
				made.close()
				return nil, err
			}
		}
	}
	for shard := range shards {
		leader, err := made.waitForLeader(uint64(shard + 1))
		if err != nil {
			made.close()
			return nil, err
		}
		made.leader = append(made.leader, leader)
	}
	return made, nil
}

func (w *world) waitForLeader(shard uint64) (*dragonboat.NodeHost, error) {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		for number, host := range w.hosts {
			leader, _, valid, err := host.GetLeaderID(shard)
			if err != nil {
				return nil, err
			}
			if valid && leader == uint64(number+1) {
				return host, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("shard %d elected no leader", shard)
}

func (w *world) close() {
	for _, host := range w.hosts {
		host.Close()
	}
}

// caller is one of those that propose; it has one proposal under way.
type caller struct {
	shard       int
	acked       int
	records     int
	latenciesUs map[int]int
	err         error
}

func (c *caller) run(host *dragonboat.NodeHost, record []byte, began, ends time.Time) {
	session := host.GetNoOPSession(uint64(c.shard + 1))
	for {
		started := time.Now()
		if !started.Before(ends) {
			return
		}
		bounded, cancel := context.WithTimeout(context.Background(), timeout)
		_, err := host.SyncPropose(bounded, session, record)
		cancel()
		if err != nil {
			c.err = fmt.Errorf("shard %d: %w", c.shard+1, err)
			return
		}
		c.acked++
		if now := time.Now(); !now.Before(began) && now.Before(ends) {
			c.records++
			c.latenciesUs[int(now.Sub(started).Microseconds())]++
		}
	}
}

func (w *world) measure(wanted command) (result, error) {
	record := make([]byte, wanted.Size)
	began := time.Now().Add(time.Duration(wanted.Warmup * float64(time.Second)))
	ends := began.Add(time.Duration(wanted.Seconds * float64(time.Second)))
	callers := make([]caller, wanted.Callers)
	var group sync.WaitGroup
	for number := range callers {
		one := &callers[number]
		one.shard = number % len(w.leader)
		one.latenciesUs = map[int]int{}
		group.Go(func() { one.run(w.leader[one.shard], record, began, ends) })
	}
	group.Wait()
	total := result{Seconds: wanted.Seconds, LatenciesUs: map[int]int{}}
	for _, one := range callers {
		if one.err != nil {
			return total, one.err
		}
		total.Records += one.records
		for latency, count := range one.latenciesUs {
			total.LatenciesUs[latency] += count
		}
		w.acked[one.shard].Records += uint64(one.acked)
		w.acked[one.shard].Bytes += uint64(one.acked * wanted.Size)
	}
	return total, nil
}

// lost says what is not there: every host is asked for every shard, linearizably.
func (w *world) lost() (string, error) {
	for number, host := range w.hosts {
		for shard, acked := range w.acked {
			found, err := read(host, uint64(shard+1))
			if err != nil {
				return "", fmt.Errorf("host %d, shard %d: %w", number+1, shard+1, err)
			}
			if found != acked {
				return fmt.Sprintf(
					"host %d, shard %d has %+v of %+v", number+1, shard+1, found, acked,
				), nil
			}
		}
	}
	return "", nil
}

// read asks again while the shard is not ready: between leaders, and on a host that has not heard of
// one, it drops what it is asked.
func read(host *dragonboat.NodeHost, shard uint64) (any, error) {
	bounded, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		found, err := host.SyncRead(bounded, shard, nil)
		if !errors.Is(err, dragonboat.ErrShardNotReady) || bounded.Err() != nil {
			return found, err
		}
		time.Sleep(rttMs * time.Millisecond)
	}
}

func answer(output io.Writer, value any) {
	if err := json.NewEncoder(output).Encode(value); err != nil {
		os.Exit(1) // nobody listens
	}
}

func main() {
	engine := flag.String("engine", "pebble", "pebble or tan")
	directory := flag.String("directory", "", "where the data goes")
	addresses := flag.String("addresses", "", "of the hosts, with commas between them")
	flag.Parse()
	output := os.Stdout
	for _, name := range []string{
		"config", "dragonboat", "grpc", "logdb", "pebblekv", "raft", "raftpb", "registry", "rsm",
		"settings", "tan", "transport", "utils",
	} {
		logger.GetLogger(name).SetLevel(logger.WARNING)
	}
	answer(output, map[string]bool{"ready": true})
	var now *world
	for made, lines := 0, bufio.NewScanner(os.Stdin); lines.Scan(); {
		var wanted command
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			answer(output, map[string]string{"error": err.Error()})
			continue
		}
		if now == nil || len(now.acked) != wanted.Shards {
			if now != nil {
				now.close()
			}
			place := filepath.Join(*directory, fmt.Sprint(made))
			made++
			var err error
			now, err = newWorld(*engine, place, strings.Split(*addresses, ","), wanted.Shards)
			if err != nil {
				answer(output, map[string]string{"error": err.Error()})
				now = nil
				continue
			}
		}
		measured, err := now.measure(wanted)
		missing := ""
		if err == nil {
			missing, err = now.lost()
		}
		switch {
		case err != nil:
			answer(output, map[string]string{"error": err.Error()})
		case missing != "":
			answer(output, map[string]string{"lost": missing})
		default:
			answer(output, measured)
		}
	}
	if now != nil {
		now.close()
	}
}
