package example;

import com.google.protobuf.ByteString;
import io.grpc.Context;
import io.grpc.stub.StreamObserver;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import logservice.wire.v1.AppendStreamRequest;
import logservice.wire.v1.AppendStreamResponse;

/**
 * Appends in one session, pipelined: each block is applied once, in order, whatever becomes of streams and leaders.
 *
 * <p>Blocks without an ack are kept. When a stream ends, for whatever reason that may be repeated, another one begins
 * with all of them: the same bytes under the same sequences. Whoever applied them already says so, with their LSNs.
 * One thread uses it; gRPC's threads only put what comes into {@code arrived}.
 */
final class Appender implements AutoCloseable {
    private static final int WINDOW = 64; // unanswered sequences of a session: the table of limits
    private static final long STALL_MS = 3_000; // a leader that stands still says nothing: leave it

    /** {@code lsn} is that of the first record. */
    record Ack(long lsn, int records, boolean duplicate) {}

    private record Pending(long sequence, ByteString block) {}

    /** What a stream said: acks, or how it ended. */
    private record Event(int stream, AppendStreamResponse acks, Throwable end) {}

    private final Wal wal;
    private final long session;
    private final ByteString nonce; // a secret
    private final Deque<Pending> unanswered = new ArrayDeque<>();
    private final BlockingQueue<Event> arrived = new LinkedBlockingQueue<>();
    private final Deque<Ack> acked = new ArrayDeque<>();
    private long sequence;
    private int streams; // the number of the newest one: what older ones say is not heard
    private StreamObserver<AppendStreamRequest> stream;
    private Context.CancellableContext call;
    private long progress = System.nanoTime();
    private int toLose;
    private int loseEvery;

    Appender(Wal wal, long session, ByteString nonce) {
        this.wal = wal;
        this.session = session;
        this.nonce = nonce;
    }

    /** For tests: throw away every so manieth answer, as a connection does that breaks behind the store's back. */
    void loseEvery(int answers) {
        loseEvery = answers;
        toLose = answers;
    }

    /** Hands a block to the log; waits while the session's window is full. Returns what was acked meanwhile. */
    List<Ack> append(List<byte[]> records, long timestampUs) throws Failure, InterruptedException {
        Pending block = new Pending(++sequence, ByteString.copyFrom(Block.encode(records, timestampUs)));
        while (unanswered.size() >= WINDOW) {
            step(true);
        }
        if (unanswered.isEmpty()) {
            progress = System.nanoTime();
        }
        unanswered.add(block);
        if (stream == null) {
            begin();
        } else {
            stream.onNext(message(block).build());
        }
        step(false);
        return taken();
    }

    /** Waits until everything is durable. */
    List<Ack> flush() throws Failure, InterruptedException {
        while (!unanswered.isEmpty()) {
            step(true);
        }
        return taken();
    }

    private List<Ack> taken() {
        List<Ack> all = List.copyOf(acked);
        acked.clear();
        return all;
    }

    private void step(boolean wait) throws Failure, InterruptedException {
        Event event = wait ? arrived.poll(STALL_MS, TimeUnit.MILLISECONDS) : arrived.poll();
        while (event != null && event.stream != streams) {
            event = arrived.poll();
        }
        if (event == null) {
            long silent = System.nanoTime() - progress;
            if (wait && silent > TimeUnit.MILLISECONDS.toNanos(STALL_MS)) {
                again(Failure.of(io.grpc.Status.UNAVAILABLE.withDescription("no ack").asException(), true));
            }
        } else if (event.acks == null) {
            again(Failure.of(event.end, true));
        } else if (loseEvery > 0 && --toLose == 0) {
            toLose = loseEvery;
            again(Failure.of(io.grpc.Status.UNAVAILABLE.withDescription("lost").asException(), true));
        } else {
            for (AppendStreamResponse.Ack ack : event.acks.getAcksList()) {
                if (unanswered.isEmpty() || ack.getSequence() != unanswered.peek().sequence) {
                    throw new IllegalStateException("an ack of sequence " + ack.getSequence() + " out of order");
                }
                unanswered.remove();
                acked.add(new Ack(ack.getLsn(), ack.getRecordCount(), ack.getDuplicate()));
            }
            progress = System.nanoTime();
            String leader = event.acks.getPosition().getLeaderAddress();
            if (!leader.isEmpty() && !leader.equals(wal.stores.first())) {
                wal.stores.prefer(leader);
                begin(); // a hop less from here on; what is on its way is sent twice, and applied once
            }
        }
    }

    private void again(Failure failure) throws Failure, InterruptedException {
        long silent = System.nanoTime() - progress;
        if (!failure.retryable || silent > wal.stores.patience.toNanos()) {
            close();
            throw failure;
        }
        wal.stores.moveOn(failure);
        begin();
    }

    /** A new stream, with everything that has no ack; when there is nothing, the next append makes it. */
    private void begin() {
        close();
        int mine = ++streams;
        if (unanswered.isEmpty()) {
            return;
        }
        call = Context.current().withCancellation();
        Context before = call.attach();
        try {
            stream = wal.stores.streaming().appendStream(new StreamObserver<>() {
                @Override
                public void onNext(AppendStreamResponse acks) {
                    arrived.add(new Event(mine, acks, null));
                }

                @Override
                public void onError(Throwable error) {
                    arrived.add(new Event(mine, null, error));
                }

                @Override
                public void onCompleted() {
                    arrived.add(new Event(
                            mine, null, io.grpc.Status.UNAVAILABLE.withDescription("it was ended").asException()));
                }
            });
        } finally {
            call.detach(before);
        }
        AppendStreamRequest.Open open = AppendStreamRequest.Open.newBuilder()
                .setShardId(wal.shard).setSessionId(session).setSessionNonce(nonce)
                .setWriterEpoch(wal.epoch).setLineage(wal.lineage).build();
        boolean opened = false;
        for (Pending block : unanswered) { // one message each: so none is larger than a request may be
            AppendStreamRequest.Builder message = message(block);
            stream.onNext(opened ? message.build() : message.setOpen(open).build());
            opened = true;
        }
    }

    private static AppendStreamRequest.Builder message(Pending block) {
        return AppendStreamRequest.newBuilder().addBlocks(AppendStreamRequest.Block.newBuilder()
                .setSequence(block.sequence).setBlock(block.block));
    }

    /** Ends the stream; what is unanswered has an unknown outcome then. */
    @Override
    public void close() {
        if (call != null) {
            call.cancel(null);
            call = null;
            stream = null;
        }
    }
}
