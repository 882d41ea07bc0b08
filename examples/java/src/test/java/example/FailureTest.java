package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.grpc.Status;
import java.util.Map;
import org.junit.jupiter.api.Test;

class FailureTest {
    @Test
    void whatTheServiceSays() {
        check(said(Status.Code.FAILED_PRECONDITION, "FENCED"), true, false, false);
        check(said(Status.Code.RESOURCE_EXHAUSTED, "BUSY"), true, true, false);
        check(said(Status.Code.UNAVAILABLE, "UNKNOWN_OUTCOME"), true, true, true);
        check(said(Status.Code.FAILED_PRECONDITION, "SESSION_EXPIRED"), true, false, true);
        check(said(Status.Code.UNAVAILABLE, "A_REASON_OF_TOMORROW"), true, true, true);
    }

    @Test
    void whatIsOfGrpcItself() {
        check(Status.UNAVAILABLE.asException(), false, true, false);
        check(Status.UNAVAILABLE.asException(), true, true, true);
        check(Status.INTERNAL.asException(), true, false, true);
        check(exhausted("Concurrent RPC limit exceeded!"), true, true, false);
        check(exhausted("gRPC message exceeds maximum size 4194304: 5000000"), false, false, false);
        check(exhausted("received message larger than max"), false, false, false);
        check(Status.UNIMPLEMENTED.asException(), true, false, false);
    }

    @Test
    void aReasonIsSaidOnceWithItsOutcome() {
        String said = Failure.of(
                        FakeStore.refusal(Status.Code.FAILED_PRECONDITION, "FENCED", Map.of()), true)
                .getMessage();
        Failure again = new Failure("FENCED", Map.of(), false, Failure.Outcome.NOT_APPLIED, said);
        assertEquals(said, again.getMessage());
        assertEquals("not applied", again.outcome.toString());
    }

    private static Throwable said(Status.Code code, String reason) {
        return FakeStore.refusal(code, reason, Map.of());
    }

    private static Throwable exhausted(String message) {
        return Status.RESOURCE_EXHAUSTED.withDescription(message).asException();
    }

    private static void check(Throwable error, boolean changes, boolean retryable, boolean unknown) {
        Failure failure = Failure.of(error, changes);
        assertEquals(retryable, failure.retryable, failure.getMessage());
        assertEquals(unknown, failure.outcome == Failure.Outcome.UNKNOWN, failure.getMessage());
    }
}
