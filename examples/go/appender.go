package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wire "logservice.internal/wire/v1"
)

const (
	window = 64              // unanswered sequences of a session: the table of limits
	stall  = 3 * time.Second // a leader that stands still says nothing: leave it
)

// ack: lsn is that of the block's first record.
type ack struct {
	lsn       uint64
	records   uint32
	duplicate bool
}

// event is what a stream said: acks, or how it ended.
type event struct {
	stream int
	acks   *wire.AppendStreamResponse
	end    error
}

// appender appends in one session, pipelined: each block is applied once, in order, whatever becomes of streams and
// leaders.
//
// Blocks without an ack are kept. When a stream ends, for whatever reason that may be repeated, another one begins with
// all of them: the same bytes under the same sequences. Whoever applied them already says so, with their LSNs. One
// goroutine uses it; one for each stream only puts what comes into arrived.
type appender struct {
	wal        *wal
	session    uint64
	nonce      []byte // a secret
	unanswered []*wire.AppendStreamRequest_Block
	arrived    chan event
	sequence   uint64
	streams    int // the number of the newest one: what older ones say is not heard
	stream     wire.Log_AppendStreamClient
	ctx        context.Context
	cancel     context.CancelFunc
	progress   time.Time
	loseEvery  int // for tests: throw away every so manieth answer, as a connection does that breaks behind the store's back
	answers    int
}

func newAppender(ctx context.Context, w *wal, session uint64, nonce []byte) *appender {
	return &appender{
		wal: w, session: session, nonce: nonce, ctx: ctx, cancel: func() {}, progress: time.Now(),
		arrived: make(chan event, 2*window),
	}
}

// append hands a block to the log; it waits while the session's window is full. It returns what was acked meanwhile.
func (a *appender) append(records [][]byte, timestampUs int64) (acked []ack, err error) {
	for len(a.unanswered) >= window {
		some, err := a.step(true)
		if err != nil {
			return acked, err
		}
		acked = append(acked, some...)
	}
	if len(a.unanswered) == 0 {
		a.progress = time.Now()
	}
	a.sequence++
	block := &wire.AppendStreamRequest_Block{Sequence: a.sequence, Block: encode(records, timestampUs)}
	a.unanswered = append(a.unanswered, block)
	if a.stream == nil {
		err = a.begin()
	} else {
		// An error of Send says only that the stream ended; why comes from Recv.
		_ = a.stream.Send(&wire.AppendStreamRequest{Blocks: []*wire.AppendStreamRequest_Block{block}})
	}
	if err != nil {
		return acked, err
	}
	some, err := a.step(false)
	return append(acked, some...), err
}

// flush waits until everything is durable.
func (a *appender) flush() (acked []ack, err error) {
	for len(a.unanswered) > 0 {
		some, err := a.step(true)
		if err != nil {
			return acked, err
		}
		acked = append(acked, some...)
	}
	return acked, nil
}

func (a *appender) step(wait bool) ([]ack, error) {
	var heard event
	if wait {
		select {
		case heard = <-a.arrived:
		case <-time.After(stall):
			if time.Since(a.progress) < stall {
				return nil, nil
			}
			return nil, a.again(broken("no ack"))
		}
	} else {
		select {
		case heard = <-a.arrived:
		default:
			return nil, nil
		}
	}
	switch {
	case heard.stream != a.streams:
		return nil, nil
	case heard.end != nil:
		return nil, a.again(failureOf(heard.end, true))
	}
	if a.answers++; a.loseEvery > 0 && a.answers%a.loseEvery == 0 {
		return nil, a.again(broken("lost"))
	}
	var acked []ack
	for _, one := range heard.acks.Acks {
		if len(a.unanswered) == 0 || one.Sequence != a.unanswered[0].Sequence {
			return acked, fmt.Errorf("an ack of sequence %d out of order", one.Sequence)
		}
		a.unanswered = a.unanswered[1:]
		acked = append(acked, ack{one.Lsn, one.RecordCount, one.Duplicate})
	}
	a.progress = time.Now()
	if leader := heard.acks.GetPosition().GetLeaderAddress(); leader != "" && leader != a.wal.stores.first() {
		a.wal.stores.prefer(leader)
		return acked, a.begin() // a hop less from here on; what is on its way is sent twice, and applied once
	}
	return acked, nil
}

func (a *appender) again(found *failure) error {
	if !found.retryable || time.Since(a.progress) > a.wal.stores.patience {
		a.close()
		return found
	}
	a.wal.stores.moveOn(found)
	return a.begin()
}

// begin opens a new stream, with everything that has no ack; when there is nothing, the next append does it.
func (a *appender) begin() error {
	a.close()
	a.streams++
	if len(a.unanswered) == 0 {
		return nil
	}
	client, err := a.wal.stores.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(a.ctx)
	a.cancel = cancel
	mine := a.streams
	stream, err := client.AppendStream(ctx)
	if err != nil {
		return a.again(failureOf(err, true))
	}
	a.stream = stream
	go func() {
		for {
			acks, err := stream.Recv()
			select {
			case a.arrived <- event{mine, acks, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	message := &wire.AppendStreamRequest{Open: &wire.AppendStreamRequest_Open{
		ShardId: a.wal.shard, SessionId: a.session, SessionNonce: a.nonce,
		WriterEpoch: a.wal.epoch, Lineage: a.wal.lineage,
	}}
	for _, block := range a.unanswered { // one message each: so none is larger than a request may be
		message.Blocks = []*wire.AppendStreamRequest_Block{block}
		_ = stream.Send(message) // as in append
		message = &wire.AppendStreamRequest{}
	}
	return nil
}

// close ends the stream; what is unanswered has an unknown outcome then.
func (a *appender) close() {
	a.cancel()
	a.stream = nil
}

func broken(why string) *failure { return failureOf(status.Error(codes.Unavailable, why), true) }
