package main

import (
	"context"
	"fmt"
	"strconv"

	wire "logservice.internal/wire/v1"
)

// wal is one log as its writer sees it: take over, recover, append, truncate.
type wal struct {
	stores  *stores
	shard   uint64
	epoch   uint64
	lineage []byte // which history of the log this process knows; a request that names another one is refused
}

// learn remembers what the first answer says of the lineage.
func (w *wal) learn(position *wire.LogPosition) {
	if w.lineage == nil {
		w.lineage = make([]byte, 16) // a log that was never continued by force
		if said := position.GetLineage(); said != nil {
			w.lineage = said.GetId()
		}
	}
}

// takeOver fences whoever wrote before: nothing of theirs takes effect from now on. To repeat it is harmless here,
// since only the newest epoch is used. If a late attempt is granted behind it, appends are refused, and nothing is lost.
func (w *wal) takeOver(ctx context.Context, holder string) error {
	answer, err := call(ctx, w.stores, true,
		func(ctx context.Context, store wire.LogClient) (*wire.AcquireWriterResponse, error) {
			return store.AcquireWriter(ctx, &wire.AcquireWriterRequest{
				ShardId: w.shard, Holder: holder, Takeover: true, Lineage: w.lineage,
			})
		})
	if err != nil {
		return err
	}
	w.learn(answer.Position)
	w.epoch = answer.Epoch
	return nil
}

// read hands out every record from an LSN to the tail, and returns the LSN that comes next. Gaps have no records.
func (w *wal) read(ctx context.Context, from uint64, take func(lsn uint64, record []byte) error) (uint64, error) {
	next := from
	for {
		asked := next
		answer, err := call(ctx, w.stores, false,
			func(ctx context.Context, store wire.LogClient) (*wire.ReadResponse, error) {
				return store.Read(ctx, &wire.ReadRequest{ShardId: w.shard, Lsn: asked, Lineage: w.lineage})
			})
		if err != nil {
			return next, err
		}
		w.learn(answer.Position)
		for _, run := range answer.Blocks {
			// The first run may begin below the LSN that was asked for; none may leave LSNs out.
			if run.FirstLsn > next || run.FirstLsn < next && next != asked {
				return next, discontinuity(next, run.FirstLsn)
			}
			if run.Gap == wire.GapReason_GAP_REASON_NONE {
				records, err := decode(run.Block)
				if err != nil {
					return next, err
				}
				for number := int(next - run.FirstLsn); number < len(records); number++ {
					if err := take(run.FirstLsn+uint64(number), records[number]); err != nil {
						return next, err
					}
				}
			}
			next = run.FirstLsn + uint64(run.RecordCount)
		}
		if answer.NextLsn != next {
			return next, discontinuity(next, answer.NextLsn)
		}
		if next == asked {
			return next, nil // the tail
		}
	}
}

// truncate: everything up to an LSN may go. It returns how far it went, which is less while a hold wants more.
func (w *wal) truncate(ctx context.Context, lsn uint64) (uint64, error) {
	answer, err := call(ctx, w.stores, true,
		func(ctx context.Context, store wire.LogClient) (*wire.TruncateResponse, error) {
			return store.Truncate(ctx, &wire.TruncateRequest{
				ShardId: w.shard, Lsn: lsn, WriterEpoch: w.epoch, Lineage: w.lineage,
			})
		})
	if details, ok := refusedWith(err, "STALE_TRUNCATE"); ok { // truncated already, perhaps by an earlier attempt
		return strconv.ParseUint(details["current"], 10, 64)
	}
	return answer.GetTruncatedLsn(), err
}

func (w *wal) appender(ctx context.Context) (*appender, error) {
	answer, err := call(ctx, w.stores, true,
		func(ctx context.Context, store wire.LogClient) (*wire.OpenSessionResponse, error) {
			return store.OpenSession(ctx, &wire.OpenSessionRequest{ShardId: w.shard, Lineage: w.lineage})
		})
	if err != nil {
		return nil, err
	}
	w.learn(answer.Position)
	return newAppender(ctx, w, answer.SessionId, answer.Nonce), nil
}

func discontinuity(asked, found uint64) *failure {
	return &failure{
		reason: "DISCONTINUITY", message: fmt.Sprintf("LSN %d was asked for, and %d came", asked, found),
	}
}
