// A database that is one number, and whose write-ahead log is the service. It takes over from whoever wrote before,
// recovers, appends, and truncates what its checkpoint has.
//
//	go run . -endpoints 127.0.0.1:7401,127.0.0.1:7402 -holder db-1 -records 1000
//
// Record n of the log is "n HOLDER", whoever wrote it. So a record that is lost, doubled, out of order, or of a writer
// that was fenced shows when the log is read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	blockRecords = 10
	fenced       = 3
)

var (
	endpoints  = flag.String("endpoints", "127.0.0.1:7401", "client addresses of stores, host:port,...")
	shard      = flag.Uint64("shard", 1, "the log")
	holder     = flag.String("holder", "db-1", "this writer's name")
	count      = flag.Int64("records", 1000, "how many to append; -1: until another writer takes over")
	checkpoint = flag.Uint64("checkpoint", 0, "the database's own files have everything up to this LSN")
	loseEvery  = flag.Int("lose-every", 0, "throw away every so manieth answer")
	timeout    = flag.Int64("timeout", 60, "seconds, of a call")
)

// database is the number of the newest record.
type database struct{ number int64 }

func main() {
	flag.Parse()
	known := newStores(strings.Split(*endpoints, ","), time.Duration(*timeout)*time.Second, *shard)
	defer known.close()
	err := (&database{}).run(context.Background(), &wal{stores: known, shard: *shard})
	if details, ok := refusedWith(err, "FENCED"); ok {
		fmt.Printf("fenced: epoch %s was granted to %s\n", details["epoch"], details["holder"])
		os.Exit(fenced)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (d *database) run(ctx context.Context, log *wal) error {
	if err := log.takeOver(ctx, *holder); err != nil {
		return err
	}
	fmt.Printf("epoch %d: %s writes\n", log.epoch, *holder)
	recovered := 0
	next, err := log.read(ctx, *checkpoint+1, func(lsn uint64, record []byte) error {
		recovered++
		return d.apply(lsn, string(record))
	})
	if err != nil {
		return err
	}
	fmt.Printf("recovered %d records up to LSN %d, the last is %d\n", recovered, next-1, d.number)
	if err := d.append(ctx, log); err != nil || *checkpoint == 0 {
		return err
	}
	truncated, err := log.truncate(ctx, *checkpoint)
	if err != nil {
		return err
	}
	fmt.Printf("truncated up to LSN %d\n", truncated)
	_, err = log.read(ctx, 1, func(uint64, []byte) error { return nil })
	details, ok := refusedWith(err, "TRUNCATED")
	if !ok {
		return errors.Join(errors.New("LSN 1 is still there"), err)
	}
	fmt.Printf("LSN 1 is gone: the log begins at LSN %s\n", details["first_lsn"])
	return nil
}

func (d *database) append(ctx context.Context, log *wal) error {
	appender, err := log.appender(ctx)
	if err != nil {
		return err
	}
	defer appender.close()
	appender.loseEvery = *loseEvery
	last, durable, repeated := d.number, int64(0), 0
	more := func() bool { return *count < 0 || d.number < last+*count }
	for more() || durable < *count {
		var acked []ack
		if more() {
			var records [][]byte
			for len(records) < blockRecords && more() {
				d.number++
				records = append(records, fmt.Appendf(nil, "%d %s", d.number, *holder))
			}
			acked, err = appender.append(records, time.Now().UnixMicro())
		} else {
			acked, err = appender.flush()
		}
		for _, one := range acked {
			durable += int64(one.records)
			if one.duplicate {
				repeated++
			}
			fmt.Printf("durable: %d at LSN %d\n", last+durable, one.lsn+uint64(one.records)-1)
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("appended %d records, %d blocks acknowledged by a repetition\n", durable, repeated)
	return nil
}

// apply is redo: the record behind n has to be n + 1. The first one that is left may be any.
func (d *database) apply(lsn uint64, record string) error {
	text, _, _ := strings.Cut(record, " ")
	said, err := strconv.ParseInt(text, 10, 64)
	if err != nil || d.number != 0 && said != d.number+1 {
		return fmt.Errorf("LSN %d has %q behind %d", lsn, record, d.number)
	}
	d.number = said
	return nil
}
