package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func freeAddresses(t *testing.T, count int) []string {
	t.Helper()
	var addresses []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

func TestWhatAHostDoesNotHaveIsSaid(t *testing.T) {
	made, err := newWorld("tan", t.TempDir(), freeAddresses(t, 3), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer made.close()
	measured, err := made.measure(command{Callers: 3, Size: 5, Shards: 2, Seconds: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, count := range measured.LatenciesUs {
		counted += count
	}
	if measured.Records == 0 || counted != measured.Records {
		t.Fatalf("%d records, %d latencies", measured.Records, counted)
	}
	if missing, err := made.lost(); missing != "" || err != nil {
		t.Fatal(missing, err)
	}
	total := made.acked[1].Records
	if total == 0 || made.acked[1].Bytes != 5*total {
		t.Fatalf("%+v", made.acked[1])
	}
	made.acked[1].Records++
	missing, err := made.lost()
	if err != nil || !strings.Contains(missing, fmt.Sprintf("host 1, shard 2 has {Records:%d", total)) {
		t.Fatal(missing, err)
	}
}
