package main

import (
	"encoding/hex"
	"strings"
	"testing"
)

// The blocks of docs/formats/block.md, and some that this client does not read.
func TestBlocksOfBothVersions(t *testing.T) {
	const wide = "424c4b310200010003000000500000008e372bc80000000040222018240a0600" +
		"030000004000000040000000000000000000000007000000070000000c000000" +
		"70757420613d3164656c20620000000005000000000000000000000001000000" +
		"01000000010000006100000000000000"
	const cut = "424c4b3102000100020000005000000022d2aead0100000040222018240a0600" +
		"030000004000000040000000000000000000000007000000070000000c000000" +
		"70757420613d3164656c20620000000005000000000000000000000001000000" +
		"01000000010000006100000000000000"
	const compressed = "424c4b310201000003000000180000003136c473000000000000000000000000" +
		"030000004000000008000000000000003132333435363738"
	const lying = "424c4b3102000000020000002800000003a52bd7000000000000000000000000" +
		"020000001800000018000000000000000000000001000000ffffff7f00000000" +
		"6162000000000000"
	// Cut, so that its first offset is not the body's; read with a sign it would be negative.
	const negative = "424c4b31020000000100000028000000a4f41173010000000000000000000000" +
		"0200000018000000180000000000000000000000880200800300000000000000" +
		"6162630000000000"
	for _, tried := range []struct{ name, data, wanted, failure string }{
		{"plain", "424c4b31010000000300000020000000bb5498160000000040222018240a0600" +
			"0000000007000000070000000c00000070757420613d3164656c206200000000", "put a=1||del b", ""},
		{"wide", wide, "put a=1||del b", ""},
		{"cut", cut, "|del b", ""},
		{"compressed", compressed, "", "version 2 and codec 1"},
		{"offsets beyond the end", lying, "", "do not ascend"},
		{"a negative offset", negative, "", "do not ascend"},
		{"half a block", wide[:100], "", "not what the header says"},
	} {
		data, err := hex.DecodeString(tried.data)
		if err != nil {
			t.Fatal(err)
		}
		records, err := decode(data)
		if tried.failure != "" {
			if err == nil || !strings.Contains(err.Error(), tried.failure) {
				t.Errorf("%s: %v, wanted %q", tried.name, err, tried.failure)
			}
			continue
		}
		found := make([]string, len(records))
		for number, record := range records {
			found[number] = string(record)
		}
		if err != nil || strings.Join(found, "|") != tried.wanted {
			t.Errorf("%s: %q, %v", tried.name, found, err)
		}
	}
}
