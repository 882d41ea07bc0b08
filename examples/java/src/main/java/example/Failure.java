package example;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** A failed attempt: what the caller may do, and what is known of the outcome (the page's "When a call fails"). */
final class Failure extends Exception {
    enum Outcome {
        NOT_APPLIED,
        UNKNOWN;

        /** As the page says it. */
        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT).replace('_', ' ');
        }
    }

    // The page's table of reasons, by its columns retryable and outcome; a test compares them.
    // table: retryable, not applied
    private static final Set<String> AGAIN = Set.of(
            "NOT_LEADER", "SHARD_NOT_FOUND", "SHARD_RESTORING", "NOT_ENOUGH_STORES", "SEQUENCE_GAP", "BUSY",
            "DISK_FULL", "NOT_READY");
    // table: retryable, unknown
    private static final Set<String> AGAIN_UNKNOWN = Set.of("UNKNOWN_OUTCOME", "DEADLINE");
    // table: final, unknown
    private static final Set<String> FINAL_UNKNOWN = Set.of("SESSION_EXPIRED");
    // table: final, not applied
    private static final Set<String> FINAL = Set.of(
            "INVALID_ARGUMENT", "SHARD_EXISTS", "SHARD_CLOSED", "SHARD_DELETED", "DELETE_REFUSED", "FENCED",
            "TRUNCATED", "BEYOND_TAIL", "STALE_TRUNCATE", "HOLD_REFUSED", "HOLD_LOST", "WRONG_EXPECTED_LSN",
            "SEQUENCE_REUSED", "STALE_EPOCH", "TOO_LARGE", "CORRUPT_BLOCK", "HALTED", "WRONG_CLUSTER",
            "UNAUTHENTICATED", "PERMISSION_DENIED", "VERB_REFUSED", "EVENTS_COMPACTED", "LINEAGE_CHANGED",
            "CLIENT_CLOSED", "HANDSHAKE_FAILED", "DISCONTINUITY", "CODEC_MISSING");
    // table: end

    /** Empty when the failure is gRPC's own. */
    final String reason;

    final Map<String, String> details;
    final boolean retryable;
    final Outcome outcome;

    Failure(String reason, Map<String, String> details, boolean retryable, Outcome outcome, String message) {
        super(reason.isEmpty() || message.startsWith(reason + ": ") ? message : reason + ": " + message);
        this.reason = reason;
        this.details = details;
        this.retryable = retryable;
        this.outcome = outcome;
    }

    /** What a call failed with. {@code changes}: it may change something, so it matters whether it was carried out. */
    static Failure of(Throwable error, boolean changes) {
        Status status = Status.fromThrowable(error);
        String message = String.valueOf(status.getDescription());
        ErrorInfo info = errorInfo(error);
        if (info != null) {
            String reason = info.getReason();
            boolean again = AGAIN.contains(reason) || AGAIN_UNKNOWN.contains(reason);
            boolean unknown = AGAIN_UNKNOWN.contains(reason) || FINAL_UNKNOWN.contains(reason);
            if (again || unknown || FINAL.contains(reason)) {
                Outcome outcome = unknown ? Outcome.UNKNOWN : Outcome.NOT_APPLIED;
                return new Failure(reason, info.getMetadataMap(), again, outcome, message);
            }
        }
        boolean again;
        boolean applied = changes; // perhaps
        switch (status.getCode()) {
            case UNAVAILABLE, CANCELLED, ABORTED, DEADLINE_EXCEEDED -> again = true;
            case RESOURCE_EXHAUSTED -> {
                again = !message.contains("larger than max") && !message.contains("exceeds maximum");
                applied = changes && !message.contains("Concurrent RPC limit");
            }
            case INVALID_ARGUMENT, UNIMPLEMENTED, UNAUTHENTICATED, PERMISSION_DENIED -> {
                again = false;
                applied = false;
            }
            default -> again = false;
        }
        return new Failure(
                "", Map.of(), again, applied ? Outcome.UNKNOWN : Outcome.NOT_APPLIED, status.getCode() + ": " + message);
    }

    private static ErrorInfo errorInfo(Throwable error) {
        com.google.rpc.Status said = StatusProto.fromThrowable(error);
        if (said == null) {
            return null;
        }
        for (Any detail : said.getDetailsList()) {
            if (detail.is(ErrorInfo.class)) {
                try {
                    ErrorInfo info = detail.unpack(ErrorInfo.class);
                    if (info.getDomain().equals("logservice")) {
                        return info;
                    }
                } catch (InvalidProtocolBufferException garbage) {
                    return null; // as if there were none: the status decides
                }
            }
        }
        return null;
    }
}
