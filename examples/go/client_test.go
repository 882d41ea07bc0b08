package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	wire "logservice.internal/wire/v1"
)

// --- blocks

const (
	workedStamp = 1_700_000_000_123_456
	worked      = "424c4b31010000000300000020000000" + "bb5498160000000040222018240a0600" +
		"0000000007000000070000000c000000" + "70757420613d3164656c206200000000"
)

func TestTheWorkedExampleOfThePage(t *testing.T) {
	records := [][]byte{[]byte("put a=1"), {}, []byte("del b")}
	made := encode(records, workedStamp)
	if got := hex.EncodeToString(made); got != worked {
		t.Fatal(got)
	}
	found, err := decode(made)
	if err != nil || len(found) != 3 || string(found[0]) != "put a=1" || len(found[1]) != 0 || string(found[2]) != "del b" {
		t.Fatal(found, err)
	}
}

func TestABlockWithAnyByteChangedOrMissingIsRefused(t *testing.T) {
	made := encode([][]byte{[]byte("put a=1"), {}, []byte("del b")}, workedStamp)
	for at := range made {
		changed := bytes.Clone(made)
		changed[at] ^= 0x10
		if _, err := decode(changed); err == nil {
			t.Errorf("byte %d", at)
		}
		if _, err := decode(made[:at]); err == nil {
			t.Errorf("%d bytes", at)
		}
	}
}

// --- errors

func refusal(code codes.Code, reason string, details map[string]string) error {
	info, err := anypb.New(&errdetails.ErrorInfo{Domain: "logservice", Reason: reason, Metadata: details})
	if err != nil {
		panic(err)
	}
	made := status.New(code, "no").Proto()
	made.Details = append(made.Details, info)
	return status.FromProto(made).Err()
}

func TestWhatAFailureSays(t *testing.T) {
	for name, one := range map[string]struct {
		err                         error
		changes, retryable, unknown bool
	}{
		"refused":              {refusal(codes.FailedPrecondition, "FENCED", nil), true, false, false},
		"busy":                 {refusal(codes.ResourceExhausted, "BUSY", nil), true, true, false},
		"lost on the way":      {refusal(codes.Unavailable, "UNKNOWN_OUTCOME", nil), true, true, true},
		"expired":              {refusal(codes.FailedPrecondition, "SESSION_EXPIRED", nil), true, false, true},
		"a reason of tomorrow": {refusal(codes.Unavailable, "TOMORROW", nil), true, true, true},
		"gRPC's, a read":       {status.Error(codes.Unavailable, "reset"), false, true, false},
		"gRPC's, an append":    {status.Error(codes.Unavailable, "reset"), true, true, true},
		"gRPC's, unsure":       {status.Error(codes.Internal, "?"), true, false, true},
		"too many calls":       {status.Error(codes.ResourceExhausted, "Concurrent RPC limit exceeded!"), true, true, false},
		"too large":            {status.Error(codes.ResourceExhausted, "received message larger than max"), false, false, false},
		"not known":            {status.Error(codes.Unimplemented, "?"), true, false, false},
	} {
		if found := failureOf(one.err, one.changes); found.retryable != one.retryable || found.unknown != one.unknown {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestAReasonIsSaidOnceWithItsOutcome(t *testing.T) {
	refused := status.FromProto(status.Convert(refusal(codes.FailedPrecondition, "FENCED", nil)).Proto())
	said := refused.Proto()
	said.Message = "FENCED: another writer has it"
	if got := failureOf(status.FromProto(said).Err(), true).Error(); got != "FENCED: another writer has it (not applied)" {
		t.Fatal(got)
	}
}

// --- a store that does as it is told

type fake struct {
	wire.UnimplementedLogServer
	address string
	acquire func(*wire.AcquireWriterRequest) (*wire.AcquireWriterResponse, error)
	stream  func(number int, stream wire.Log_AppendStreamServer) error
	mutex   sync.Mutex
	calls   int
	streams int
}

func (f *fake) AcquireWriter(_ context.Context, request *wire.AcquireWriterRequest) (*wire.AcquireWriterResponse, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.calls++
	return f.acquire(request)
}

func (f *fake) OpenSession(context.Context, *wire.OpenSessionRequest) (*wire.OpenSessionResponse, error) {
	return &wire.OpenSessionResponse{Position: &wire.LogPosition{}, SessionId: 7, Nonce: make([]byte, 16)}, nil
}

func (f *fake) AppendStream(stream wire.Log_AppendStreamServer) error {
	f.mutex.Lock()
	f.streams++
	number := f.streams
	f.mutex.Unlock()
	return f.stream(number, stream)
}

func serve(t *testing.T) *fake {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	made := &fake{address: listener.Addr().String()}
	server := grpc.NewServer()
	wire.RegisterLogServer(server, made)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return made
}

func walOf(fakes ...*fake) *wal {
	var addresses []string
	for _, one := range fakes {
		addresses = append(addresses, one.address)
	}
	return &wal{stores: newStores(addresses, time.Minute, 1), shard: 1}
}

func TestTheHintIsFollowedAndTheLineageIsNamedFromThenOn(t *testing.T) {
	follower, leader := serve(t), serve(t)
	follower.acquire = func(*wire.AcquireWriterRequest) (*wire.AcquireWriterResponse, error) {
		return nil, refusal(codes.FailedPrecondition, "NOT_LEADER", map[string]string{"address": leader.address})
	}
	var named [][]byte
	leader.acquire = func(request *wire.AcquireWriterRequest) (*wire.AcquireWriterResponse, error) {
		named = append(named, request.Lineage)
		return &wire.AcquireWriterResponse{
			Epoch: 4, Position: &wire.LogPosition{LeaderAddress: leader.address, Lineage: &wire.Lineage{Id: []byte("0123456789abcdef")}},
		}, nil
	}
	log := walOf(follower) // the leader's address is only in the hint
	for range 2 {
		if err := log.takeOver(context.Background(), "db-1"); err != nil || log.epoch != 4 {
			t.Fatal(err, log.epoch)
		}
	}
	if follower.calls != 1 || len(named) != 2 || len(named[0]) != 0 || string(named[1]) != "0123456789abcdef" {
		t.Fatal(follower.calls, named)
	}
}

func TestAnUnknownOutcomeIsResolvedByTheSameBytesUnderTheSameSequences(t *testing.T) {
	store := serve(t)
	var first, second []*wire.AppendStreamRequest_Block
	store.stream = func(number int, stream wire.Log_AppendStreamServer) error {
		seen := &first
		if number > 1 {
			seen = &second
		}
		opened := false
		for {
			message, err := stream.Recv()
			if err != nil {
				return err
			}
			if opened == (message.Open != nil) {
				return refusal(codes.InvalidArgument, "INVALID_ARGUMENT", nil)
			}
			opened = true
			*seen = append(*seen, message.Blocks...)
			if len(*seen) < 2 {
				continue
			}
			if number == 1 { // both are applied, and nobody hears of it
				return refusal(codes.Unavailable, "UNKNOWN_OUTCOME", map[string]string{"sequence": "1"})
			}
			acks := &wire.AppendStreamResponse{Position: &wire.LogPosition{}}
			for _, block := range *seen {
				acks.Acks = append(acks.Acks, &wire.AppendStreamResponse_Ack{
					Sequence: block.Sequence, Lsn: 10 + block.Sequence, RecordCount: 1, Duplicate: true,
				})
			}
			if err := stream.Send(acks); err != nil {
				return err
			}
		}
	}
	acked := appendTwo(t, walOf(store), nil)
	if len(acked) != 2 || acked[0] != (ack{11, 1, true}) || acked[1] != (ack{12, 1, true}) {
		t.Fatal(acked)
	}
	for at := range first {
		if first[at].Sequence != uint64(at+1) || second[at].Sequence != uint64(at+1) || !bytes.Equal(first[at].Block, second[at].Block) {
			t.Fatal(first, second)
		}
	}
}

func TestWhoIsFencedSendsNothingAgain(t *testing.T) {
	store := serve(t)
	store.stream = func(_ int, stream wire.Log_AppendStreamServer) error {
		return refusal(codes.FailedPrecondition, "FENCED", map[string]string{"epoch": "5", "holder": "db-2"})
	}
	var err error
	appendTwo(t, walOf(store), &err)
	if details, ok := refusedWith(err, "FENCED"); !ok || details["holder"] != "db-2" || store.streams != 1 {
		t.Fatal(err, store.streams)
	}
}

func appendTwo(t *testing.T, log *wal, failed *error) (acked []ack) {
	appender, err := log.appender(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer appender.close()
	for _, record := range []string{"one", "two"} {
		some, err := appender.append([][]byte{[]byte(record)}, workedStamp)
		acked = append(acked, some...)
		if err != nil {
			if failed == nil {
				t.Fatal(err)
			}
			*failed = err
			return acked
		}
	}
	some, err := appender.flush()
	if failed != nil {
		*failed = err
	} else if err != nil {
		t.Fatal(err)
	}
	return append(acked, some...)
}
