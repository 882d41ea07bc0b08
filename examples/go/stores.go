package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	wire "logservice.internal/wire/v1"
)

const (
	answerBytesMax = 25 << 20 // what the library has to accept: the table of limits
	attemptTime    = 2 * time.Second
	reconnectAfter = time.Second // gRPC's own pause grows to two minutes
)

// stores are those of a cluster: one connection to each, and the one to ask first.
type stores struct {
	connections map[string]*grpc.ClientConn
	order       []string
	patience    time.Duration // for how long a call is repeated; an election takes about a second
	shard       uint64
}

func newStores(addresses []string, patience time.Duration, shard uint64) *stores {
	return &stores{connections: map[string]*grpc.ClientConn{}, order: addresses, patience: patience, shard: shard}
}

func (s *stores) first() string { return s.order[0] }

// prefer asks this store first from now on: it leads, as another one said. It may be one that was not given.
func (s *stores) prefer(address string) {
	if address == "" {
		return
	}
	others := slices.DeleteFunc(slices.Clone(s.order), func(other string) bool { return other == address })
	s.order = append([]string{address}, others...)
}

func (s *stores) next() { s.order = append(slices.Clone(s.order[1:]), s.order[0]) }

func (s *stores) client() (wire.LogClient, error) {
	address := s.first()
	if known, ok := s.connections[address]; ok {
		return wire.NewLogClient(known), nil
	}
	pause := backoff.DefaultConfig
	pause.MaxDelay = reconnectAfter
	made, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax)))
	if err != nil {
		return nil, err
	}
	s.connections[address] = made
	return wire.NewLogClient(made), nil
}

func (s *stores) close() {
	for _, connection := range s.connections {
		_ = connection.Close() // nothing is under way any more
	}
}

type positioned interface{ GetPosition() *wire.LogPosition }

// call repeats an attempt until it succeeds, may not be repeated, or patience ends; only for what is harmless twice.
// changes: see failureOf.
func call[A positioned](
	ctx context.Context, s *stores, changes bool, attempt func(context.Context, wire.LogClient) (A, error),
) (answer A, err error) {
	end := time.Now().Add(s.patience)
	unknown := false
	for {
		client, err := s.client()
		if err != nil {
			return answer, err
		}
		limited, cancel := context.WithTimeout(ctx, attemptTime)
		answer, err = attempt(limited, client)
		cancel()
		if err == nil {
			s.prefer(answer.GetPosition().GetLeaderAddress())
			return answer, nil
		}
		found := failureOf(err, changes)
		unknown = unknown || found.unknown
		if !found.retryable || time.Now().After(end) || (found.reason == "SHARD_NOT_FOUND" && s.missing(ctx)) {
			found.unknown = unknown // what an earlier attempt may have done, the last one cannot take back
			return answer, found
		}
		s.moveOn(found)
	}
}

// missing asks HAKeeper, through any store, whether there is no such log at all: a store may only lack a replica of it.
func (s *stores) missing(ctx context.Context) bool {
	known, ok := s.connections[s.first()]
	if !ok {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	_, err := wire.NewHAKeeperClient(known).GetShardInfo(limited, &wire.GetShardInfoRequest{ShardId: s.shard})
	return err != nil && failureOf(err, false).reason == "SHARD_NOT_FOUND"
}

// moveOn goes to the store that a failure names, at once; without a hint a pause, and another store.
func (s *stores) moveOn(found *failure) {
	if hint := found.details["address"]; found.reason == "NOT_LEADER" && hint != "" && hint != s.first() {
		s.prefer(hint)
		return
	}
	if ms, err := strconv.Atoi(found.details["retry_after_ms"]); err == nil {
		time.Sleep(time.Duration(ms) * time.Millisecond)
		return
	}
	time.Sleep(time.Duration(10+rand.IntN(140)) * time.Millisecond)
	s.next()
}

// refusedWith tells whether an error has this reason, and with which details.
func refusedWith(err error, reason string) (map[string]string, bool) {
	var found *failure
	if errors.As(err, &found) && found.reason == reason {
		return found.details, true
	}
	return nil, false
}
