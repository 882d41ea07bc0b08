// A whole client of the log in one file, by docs/protocol.md alone: it opens a session, appends
// records exactly once whatever happens meanwhile, and reads them back.
//
//	go run . -endpoints 127.0.0.1:7600,127.0.0.1:7610 -shard 1 -records 1000
//
// One block for each record and one call for each block keep it short; a client that wants speed puts
// many records into a block and pipelines blocks on AppendStream.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	wire "logservice.internal/wire/v1"
)

const (
	answerBytesMax = 25 << 20 // what the library has to accept: the table of limits
	attemptTime    = 2 * time.Second
	pause          = 50 * time.Millisecond
)

// outcome says what is known of an attempt that failed.
type outcome int

const (
	notApplied outcome = iota
	unknown
)

// failure is an error of the service, or of gRPC itself (reason is empty then).
type failure struct {
	reason  string
	details map[string]string
	again   bool
	outcome outcome
	cause   error
}

func (f *failure) Error() string { return f.cause.Error() }

// reasons: the columns retryable and outcome of the page, where they are not "no, not_applied".
var reasons = map[string]failure{
	"NOT_LEADER":        {again: true},
	"SHARD_NOT_FOUND":   {again: true},
	"NOT_ENOUGH_STORES": {again: true},
	"SEQUENCE_GAP":      {again: true},
	"BUSY":              {again: true},
	"DISK_FULL":         {again: true},
	"NOT_READY":         {again: true},
	"UNKNOWN_OUTCOME":   {again: true, outcome: unknown},
	"DEADLINE":          {again: true, outcome: unknown},
	"SESSION_EXPIRED":   {outcome: unknown},
}

// understood makes a failure of what a call returned; every call here may have changed something.
func understood(err error) *failure {
	said := status.Convert(err)
	for _, detail := range said.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.Domain != "logservice" {
			continue
		}
		found := reasons[info.Reason]
		found.reason, found.details, found.cause = info.Reason, info.Metadata, err
		return &found
	}
	found := &failure{cause: err, outcome: unknown}
	switch said.Code() {
	case codes.Unavailable, codes.Canceled, codes.Aborted, codes.DeadlineExceeded:
		found.again = true
	case codes.ResourceExhausted:
		found.again = !strings.Contains(said.Message(), "larger than max")
	case codes.InvalidArgument, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		found.outcome = notApplied
	}
	return found
}

// client knows some stores and which of them to ask first.
type client struct {
	stores map[string]wire.LogClient
	order  []string
}

func dial(endpoints string) (*client, error) {
	made := &client{stores: map[string]wire.LogClient{}}
	for _, address := range strings.Split(endpoints, ",") {
		if err := made.add(address); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (c *client) add(address string) error {
	if _, known := c.stores[address]; known {
		return nil
	}
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax)))
	if err != nil {
		return err
	}
	c.stores[address] = wire.NewLogClient(connection)
	c.order = append(c.order, address)
	return nil
}

// prefer asks this store first from now on: it leads, as another one said.
func (c *client) prefer(address string) {
	if address == "" || c.add(address) != nil {
		return
	}
	order := []string{address}
	for _, other := range c.order {
		if other != address {
			order = append(order, other)
		}
	}
	c.order = order
}

// call repeats an attempt until it succeeds, may not be repeated, or the context ends. It is only for
// what is harmless twice: reads, and appends that have a session and a sequence.
func (c *client) call(ctx context.Context, attempt func(context.Context, wire.LogClient) (*wire.LogPosition, error)) error {
	for {
		limited, cancel := context.WithTimeout(ctx, attemptTime)
		position, err := attempt(limited, c.stores[c.order[0]])
		cancel()
		if err == nil {
			c.prefer(position.GetLeaderAddress())
			return nil
		}
		found := understood(err)
		if !found.again || ctx.Err() != nil {
			return found
		}
		wait := pause
		if hint := found.details["address"]; found.reason == "NOT_LEADER" && hint != "" && hint != c.order[0] {
			c.prefer(hint)
			continue
		}
		if text, ok := found.details["retry_after_ms"]; ok {
			if ms, err := strconv.Atoi(text); err == nil {
				wait = time.Duration(ms) * time.Millisecond
			}
		}
		c.order = append(c.order[1:], c.order[0])
		select {
		case <-ctx.Done():
			return found
		case <-time.After(wait):
		}
	}
}

// session numbers appends, so that each is applied once.
type session struct {
	client   *client
	shard    uint64
	id       uint64
	nonce    []byte
	sequence uint64
}

func (c *client) open(ctx context.Context, shard uint64) (*session, error) {
	made := &session{client: c, shard: shard}
	err := c.call(ctx, func(ctx context.Context, store wire.LogClient) (*wire.LogPosition, error) {
		answer, err := store.OpenSession(ctx, &wire.OpenSessionRequest{ShardId: shard})
		made.id, made.nonce = answer.GetSessionId(), answer.GetNonce()
		return answer.GetPosition(), err
	})
	return made, err
}

// append returns the LSN of the record. After an unknown outcome the same bytes go out under the same
// sequence: the log answers with the original LSN if it has them.
func (s *session) append(ctx context.Context, record []byte) (lsn uint64, duplicate bool, err error) {
	s.sequence++
	request := &wire.AppendRequest{
		ShardId: s.shard, Block: block(record), SessionId: s.id, SessionNonce: s.nonce, Sequence: s.sequence,
	}
	err = s.client.call(ctx, func(ctx context.Context, store wire.LogClient) (*wire.LogPosition, error) {
		answer, err := store.Append(ctx, request)
		lsn, duplicate = answer.GetLsn(), answer.GetDuplicate()
		return answer.GetPosition(), err
	})
	return lsn, duplicate, err
}

// read hands out every record from an LSN to the tail, and every gap.
func (c *client) read(ctx context.Context, shard, lsn uint64, take func(lsn uint64, record []byte)) error {
	for {
		var answer *wire.ReadResponse
		err := c.call(ctx, func(ctx context.Context, store wire.LogClient) (position *wire.LogPosition, err error) {
			answer, err = store.Read(ctx, &wire.ReadRequest{ShardId: shard, Lsn: lsn})
			return answer.GetPosition(), err
		})
		if err != nil {
			return err
		}
		for _, run := range answer.GetBlocks() {
			if run.GetGap() != wire.GapReason_GAP_REASON_NONE {
				continue
			}
			records, err := recordsOf(run.GetBlock())
			if err != nil {
				return err
			}
			for number, record := range records {
				// The first run may begin below the LSN that was asked for.
				if at := run.GetFirstLsn() + uint64(number); at >= lsn {
					take(at, record)
				}
			}
		}
		if answer.GetNextLsn() == lsn {
			return nil // the tail
		}
		lsn = answer.GetNextLsn()
	}
}

// --- blocks: docs/formats/block.md -----------------------------------------------------------------

const header = 32

func pad8(n int) int { return (n + 7) &^ 7 }

func block(records ...[]byte) []byte {
	values := 0
	for _, record := range records {
		values += len(record)
	}
	offsets := pad8(4 * (len(records) + 1))
	body := offsets + pad8(values)
	data := make([]byte, header+body)
	put := binary.LittleEndian
	copy(data, "BLK1")
	data[4] = 1
	put.PutUint32(data[8:], uint32(len(records)))
	put.PutUint32(data[12:], uint32(body))
	put.PutUint64(data[24:], uint64(time.Now().UnixMicro()))
	end := 0
	for number, record := range records {
		copy(data[header+offsets+end:], record)
		end += len(record)
		put.PutUint32(data[header+4*(number+1):], uint32(end))
	}
	put.PutUint32(data[16:], checksum(data))
	return data
}

func checksum(data []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(data[:16]), crc32.IEEETable, data[20:])
}

var errBlock = errors.New("the block is not what its header and its checksum say")

const secondHeader = 16

// recordsOf returns the values of a block of version 1, or of version 2 without a codec: the other
// columns of that one lie behind the values, and are not looked at.
func recordsOf(data []byte) ([][]byte, error) {
	get := binary.LittleEndian
	if len(data) < header || string(data[:4]) != "BLK1" || checksum(data) != get.Uint32(data[16:]) {
		return nil, errBlock
	}
	columns, first, count := data[header:], 0, int(get.Uint32(data[8:]))
	inBody := count
	switch version, codec := data[4], data[5]; {
	case version == 2 && codec == 0 && len(columns) >= secondHeader:
		first, inBody = int(get.Uint32(data[20:])), int(get.Uint32(columns))
		columns = columns[secondHeader:]
	case version != 1:
		return nil, fmt.Errorf("the block has version %d and codec %d, which this client does not read", version, codec)
	}
	if first+count > inBody || pad8(4*(inBody+1)) > len(columns) {
		return nil, errBlock
	}
	values := columns[pad8(4*(inBody+1)):]
	records := make([][]byte, count)
	for number := range records {
		at := 4 * (first + number)
		from, to := get.Uint32(columns[at:]), get.Uint32(columns[at+4:])
		if from > to || uint64(to) > uint64(len(values)) {
			return nil, errBlock
		}
		records[number] = values[from:to]
	}
	return records, nil
}

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:7600", "client addresses of stores, host:port,...")
	shard := flag.Uint64("shard", 1, "the log")
	count := flag.Int("records", 1000, "how many to append")
	limit := flag.Duration("timeout", time.Minute, "for everything")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	stores, err := dial(*endpoints)
	if err != nil {
		log.Fatal(err)
	}
	opened, err := stores.open(ctx, *shard)
	if err != nil {
		log.Fatalf("OpenSession: %v", err)
	}
	wrote, first, again := map[uint64]string{}, uint64(0), 0
	for number := range *count {
		record := fmt.Sprintf("record %d of session %d", number, opened.id)
		lsn, duplicate, err := opened.append(ctx, []byte(record))
		if err != nil {
			log.Fatalf("Append %d: %v", number, err)
		}
		if first == 0 {
			first = lsn
		}
		if duplicate {
			again++
		}
		wrote[lsn] = record
	}
	found := 0
	err = stores.read(ctx, *shard, first, func(lsn uint64, record []byte) {
		if wanted, mine := wrote[lsn]; mine && wanted == string(record) {
			found++
		} else if strings.HasSuffix(string(record), fmt.Sprintf("of session %d", opened.id)) {
			log.Fatalf("LSN %d holds %q, which was not appended there", lsn, record)
		}
	})
	if err != nil {
		log.Fatalf("Read: %v", err)
	}
	fmt.Printf("appended %d, read %d of them, %d acknowledged by a repetition\n", len(wrote), found, again)
	if found != *count {
		log.Fatal("some are missing")
	}
}
