package main

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failure is a failed attempt: what the caller may do, and what is known of the outcome (the page's "When a call
// fails").
type failure struct {
	reason    string // empty when the failure is gRPC's own
	details   map[string]string
	retryable bool
	unknown   bool // else it was not applied
	message   string
}

func (f *failure) Error() string {
	outcome := " (not applied)"
	if f.unknown {
		outcome = " (unknown)"
	}
	if f.reason == "" {
		return f.message + outcome
	}
	return f.reason + ": " + f.message + outcome
}

func set(names ...string) map[string]bool {
	made := map[string]bool{}
	for _, name := range names {
		made[name] = true
	}
	return made
}

// The page's table of reasons, by its columns retryable and outcome; a test compares them.
var (
	// table: retryable, not applied
	again = set(
		"NOT_LEADER", "SHARD_NOT_FOUND", "SHARD_RESTORING", "NOT_ENOUGH_STORES", "SEQUENCE_GAP", "BUSY",
		"DISK_FULL", "NOT_READY")
	// table: retryable, unknown
	againUnknown = set("UNKNOWN_OUTCOME", "DEADLINE")
	// table: final, unknown
	finalUnknown = set("SESSION_EXPIRED")
	// table: final, not applied
	final = set(
		"INVALID_ARGUMENT", "SHARD_EXISTS", "SHARD_CLOSED", "SHARD_DELETED", "DELETE_REFUSED", "FENCED",
		"TRUNCATED", "BEYOND_TAIL", "STALE_TRUNCATE", "HOLD_REFUSED", "HOLD_LOST", "WRONG_EXPECTED_LSN",
		"SEQUENCE_REUSED", "STALE_EPOCH", "TOO_LARGE", "CORRUPT_BLOCK", "HALTED", "WRONG_CLUSTER",
		"UNAUTHENTICATED", "PERMISSION_DENIED", "VERB_REFUSED", "EVENTS_COMPACTED", "LINEAGE_CHANGED",
		"CLIENT_CLOSED", "HANDSHAKE_FAILED", "DISCONTINUITY", "CODEC_MISSING")
	// table: end
)

// failureOf says what a call failed with. changes: it may change something, so it matters whether it was carried out.
func failureOf(err error, changes bool) *failure {
	said := status.Convert(err)
	for _, detail := range said.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.Domain != "logservice" {
			continue
		}
		reason := info.Reason
		found := &failure{
			reason: reason, details: info.Metadata, message: strings.TrimPrefix(said.Message(), reason+": "),
			retryable: again[reason] || againUnknown[reason],
			unknown:   againUnknown[reason] || finalUnknown[reason],
		}
		if found.retryable || found.unknown || final[reason] {
			return found
		}
	}
	found := &failure{message: said.Code().String() + ": " + said.Message(), unknown: changes}
	switch said.Code() {
	case codes.Unavailable, codes.Canceled, codes.Aborted, codes.DeadlineExceeded:
		found.retryable = true
	case codes.ResourceExhausted:
		found.retryable = !strings.Contains(said.Message(), "larger than max")
		found.unknown = changes && !strings.Contains(said.Message(), "Concurrent RPC limit")
	case codes.InvalidArgument, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
		found.unknown = false
	}
	return found
}
