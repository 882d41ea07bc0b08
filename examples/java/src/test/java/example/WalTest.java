package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import logservice.wire.v1.AcquireWriterResponse;
import logservice.wire.v1.AppendStreamRequest;
import logservice.wire.v1.AppendStreamResponse;
import logservice.wire.v1.Lineage;
import logservice.wire.v1.LogPosition;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class WalTest {
    private FakeStore store;
    private Stores stores;
    private Wal wal;

    @BeforeEach
    void start() throws IOException {
        store = new FakeStore();
        stores = new Stores(List.of(store.address()), Duration.ofMinutes(1), 1);
        wal = new Wal(stores, 1);
    }

    @AfterEach
    void stop() {
        stores.close();
        store.close();
    }

    @Test
    void theHintIsFollowedAndTheLineageIsNamedFromThenOn() throws Exception {
        ByteString lineage = ByteString.copyFromUtf8("0123456789abcdef");
        List<ByteString> named = new CopyOnWriteArrayList<>();
        try (FakeStore leader = new FakeStore()) { // its address is only in the hint
            store.onAcquire = request -> {
                throw FakeStore.refusal(
                        Status.Code.FAILED_PRECONDITION, "NOT_LEADER", Map.of("address", leader.address()));
            };
            leader.onAcquire = request -> {
                named.add(request.getLineage());
                return AcquireWriterResponse.newBuilder()
                        .setEpoch(4)
                        .setPosition(LogPosition.newBuilder()
                                .setLeaderAddress(leader.address())
                                .setLineage(Lineage.newBuilder().setId(lineage)))
                        .build();
            };
            wal.takeOver("db-1");
            wal.takeOver("db-1");
        }
        assertEquals(4, wal.epoch);
        assertEquals(1, store.calls.get());
        assertEquals(List.of(ByteString.EMPTY, lineage), named);
    }

    @Test
    void anUnknownOutcomeIsResolvedByTheSameBytesUnderTheSameSequences() throws Exception {
        List<AppendStreamRequest.Block> first = new CopyOnWriteArrayList<>();
        List<AppendStreamRequest.Block> second = new CopyOnWriteArrayList<>();
        store.onMessage = (stream, message, answers) -> {
            List<AppendStreamRequest.Block> seen = stream == 1 ? first : second;
            if (message.hasOpen() != seen.isEmpty()) {
                answers.onError(FakeStore.refusal(Status.Code.INVALID_ARGUMENT, "INVALID_ARGUMENT", Map.of()));
                return;
            }
            seen.addAll(message.getBlocksList());
            if (seen.size() == 2 && stream == 1) { // both are applied, and nobody hears of it
                answers.onError(
                        FakeStore.refusal(Status.Code.UNAVAILABLE, "UNKNOWN_OUTCOME", Map.of("sequence", "1")));
            } else if (seen.size() == 2) {
                AppendStreamResponse.Builder acks = AppendStreamResponse.newBuilder();
                for (AppendStreamRequest.Block block : seen) {
                    acks.addAcksBuilder().setSequence(block.getSequence()).setLsn(10 + block.getSequence())
                            .setRecordCount(1).setDuplicate(true);
                }
                answers.onNext(acks.build());
            }
        };
        assertEquals(List.of(new Appender.Ack(11, 1, true), new Appender.Ack(12, 1, true)), appendTwo());
        assertEquals(List.of(1L, 2L), first.stream().map(AppendStreamRequest.Block::getSequence).toList());
        assertEquals(first, second);
    }

    @Test
    void whoIsFencedSendsNothingAgain() {
        store.onMessage = (stream, message, answers) -> answers.onError(FakeStore.refusal(
                Status.Code.FAILED_PRECONDITION, "FENCED", Map.of("epoch", "5", "holder", "db-2")));
        Failure failure = assertThrows(Failure.class, this::appendTwo);
        assertEquals("FENCED", failure.reason);
        assertEquals("db-2", failure.details.get("holder"));
        assertEquals(1, store.streams.get());
    }

    private List<Appender.Ack> appendTwo() throws Failure, InterruptedException {
        try (Appender appender = wal.appender()) {
            List<Appender.Ack> acks = new ArrayList<>();
            for (String record : List.of("one", "two")) {
                acks.addAll(appender.append(List.of(record.getBytes(StandardCharsets.UTF_8)), 1));
            }
            acks.addAll(appender.flush());
            return acks;
        }
    }
}
