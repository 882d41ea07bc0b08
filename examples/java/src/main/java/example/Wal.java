package example;

import com.google.protobuf.ByteString;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import logservice.wire.v1.AcquireWriterRequest;
import logservice.wire.v1.AcquireWriterResponse;
import logservice.wire.v1.GapReason;
import logservice.wire.v1.LogBlock;
import logservice.wire.v1.LogPosition;
import logservice.wire.v1.OpenSessionRequest;
import logservice.wire.v1.OpenSessionResponse;
import logservice.wire.v1.ReadRequest;
import logservice.wire.v1.ReadResponse;
import logservice.wire.v1.TruncateRequest;
import logservice.wire.v1.TruncateResponse;

/** One log as its writer sees it: take over, recover, append, truncate. */
final class Wal {
    private static final ByteString NEVER_CONTINUED = ByteString.copyFrom(new byte[16]);

    final Stores stores;
    final long shard;
    /** Which history of the log this process knows; a request that names another one is refused. */
    ByteString lineage = ByteString.EMPTY;

    long epoch;

    Wal(Stores stores, long shard) {
        this.stores = stores;
        this.shard = shard;
    }

    interface Taker {
        void take(long lsn, byte[] record);
    }

    /**
     * Fences whoever wrote before: nothing of theirs takes effect from now on. To repeat it is harmless here, since
     * only the newest epoch is used. If a late attempt is granted behind it, appends are refused, and nothing is lost.
     */
    void takeOver(String holder) throws Failure, InterruptedException {
        AcquireWriterRequest.Builder request =
                AcquireWriterRequest.newBuilder().setShardId(shard).setHolder(holder).setTakeover(true);
        AcquireWriterResponse answer = call(
                true,
                store -> store.acquireWriter(request.setLineage(lineage).build()),
                AcquireWriterResponse::getPosition);
        epoch = answer.getEpoch();
    }

    /** Every record from an LSN to the tail; returns the LSN that comes next. Gaps have no records. */
    long read(long from, Taker taker) throws Failure, InterruptedException {
        long next = from;
        while (true) {
            ReadRequest request = ReadRequest.newBuilder().setShardId(shard).setLsn(next).setLineage(lineage).build();
            ReadResponse answer = call(false, store -> store.read(request), ReadResponse::getPosition);
            long asked = next;
            for (LogBlock run : answer.getBlocksList()) {
                // The first run may begin below the LSN that was asked for; none may leave LSNs out.
                if (run.getFirstLsn() > next || run.getFirstLsn() < next && next != asked) {
                    throw discontinuity(next, run.getFirstLsn());
                }
                if (run.getGapValue() == GapReason.GAP_REASON_NONE_VALUE) {
                    List<byte[]> records = Block.decode(run.getBlock().toByteArray());
                    for (int number = (int) (next - run.getFirstLsn()); number < records.size(); number++) {
                        taker.take(run.getFirstLsn() + number, records.get(number));
                    }
                }
                next = run.getFirstLsn() + run.getRecordCount();
            }
            if (answer.getNextLsn() != next) {
                throw discontinuity(next, answer.getNextLsn());
            }
            if (next == asked) {
                return next; // the tail
            }
        }
    }

    /** Everything up to an LSN may go; returns how far it went, which is less while a hold wants more. */
    long truncate(long lsn) throws Failure, InterruptedException {
        TruncateRequest request = TruncateRequest.newBuilder()
                .setShardId(shard).setLsn(lsn).setWriterEpoch(epoch).setLineage(lineage).build();
        try {
            return call(true, store -> store.truncate(request), TruncateResponse::getPosition).getTruncatedLsn();
        } catch (Failure failure) {
            if (failure.reason.equals("STALE_TRUNCATE")) { // it is truncated already, perhaps by an earlier attempt
                return Long.parseLong(failure.details.get("current"));
            }
            throw failure;
        }
    }

    Appender appender() throws Failure, InterruptedException {
        OpenSessionRequest request = OpenSessionRequest.newBuilder().setShardId(shard).setLineage(lineage).build();
        OpenSessionResponse session =
                call(true, store -> store.openSession(request), OpenSessionResponse::getPosition);
        return new Appender(this, session.getSessionId(), session.getNonce());
    }

    private <A> A call(
            boolean changes,
            Function<logservice.wire.v1.LogGrpc.LogBlockingStub, A> attempt,
            Function<A, LogPosition> position)
            throws Failure, InterruptedException {
        A answer = stores.call(changes, attempt, position);
        if (lineage.isEmpty()) { // what the first answer says
            LogPosition said = position.apply(answer);
            lineage = said.hasLineage() ? said.getLineage().getId() : NEVER_CONTINUED;
        }
        return answer;
    }

    private static Failure discontinuity(long asked, long found) {
        return new Failure(
                "DISCONTINUITY", Map.of(), false, Failure.Outcome.NOT_APPLIED,
                "LSN " + asked + " was asked for, and " + found + " came");
    }
}
