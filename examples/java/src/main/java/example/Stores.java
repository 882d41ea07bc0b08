package example;

import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import logservice.wire.v1.GetShardInfoRequest;
import logservice.wire.v1.HAKeeperGrpc;
import logservice.wire.v1.LogGrpc;
import logservice.wire.v1.LogPosition;

/** The stores of a cluster: one connection to each, the one to ask first, and calls that are repeated. */
final class Stores implements AutoCloseable {
    private static final int ANSWER_BYTES_MAX = 25 << 20; // what the library has to accept: the table of limits
    private static final long ATTEMPT_MS = 2_000;

    private final Map<String, ManagedChannel> channels = new HashMap<>();
    private final Deque<String> order = new ArrayDeque<>();
    final Duration patience;
    private final long shard;

    /** {@code patience}: for how long a call is repeated. An election takes about a second. */
    Stores(Iterable<String> addresses, Duration patience, long shard) {
        this.shard = shard;
        addresses.forEach(order::add);
        this.patience = patience;
    }

    String first() {
        return order.getFirst();
    }

    /** This store leads, as another one said: ask it first. Addresses that were not given are dialled, too. */
    void prefer(String address) {
        if (!address.isEmpty()) {
            order.remove(address);
            order.addFirst(address);
        }
    }

    void next() {
        order.addLast(order.removeFirst());
    }

    LogGrpc.LogStub streaming() {
        return LogGrpc.newStub(channel());
    }

    private ManagedChannel channel() {
        ManagedChannel made = channels.computeIfAbsent(first(), address -> {
            int colon = address.lastIndexOf(':');
            String host = address.substring(0, colon);
            int port = Integer.parseInt(address.substring(colon + 1));
            return NettyChannelBuilder.forAddress(new InetSocketAddress(host, port)) // no resolver, and so no proxy
                    .usePlaintext()
                    .disableRetry()
                    .maxInboundMessageSize(ANSWER_BYTES_MAX)
                    .build();
        });
        made.resetConnectBackoff(); // gRPC's own pause grows to two minutes; moveOn has one, too
        return made;
    }

    /**
     * Repeats an attempt until it succeeds, may not be repeated, or patience ends; only for what is harmless twice.
     * {@code changes}: see Failure.of.
     */
    <A> A call(boolean changes, Function<LogGrpc.LogBlockingStub, A> attempt, Function<A, LogPosition> position)
            throws Failure, InterruptedException {
        long end = System.nanoTime() + patience.toNanos();
        boolean unknown = false;
        while (true) {
            try {
                A answer = attempt.apply(
                        LogGrpc.newBlockingStub(channel()).withDeadlineAfter(ATTEMPT_MS, TimeUnit.MILLISECONDS));
                prefer(position.apply(answer).getLeaderAddress());
                return answer;
            } catch (io.grpc.StatusRuntimeException error) {
                Failure failure = Failure.of(error, changes);
                unknown |= failure.outcome == Failure.Outcome.UNKNOWN;
                if (!failure.retryable || System.nanoTime() > end || missing(failure)) {
                    // What an earlier attempt may have done, the last one cannot take back.
                    throw unknown && failure.outcome != Failure.Outcome.UNKNOWN
                            ? new Failure(
                                    failure.reason, failure.details, failure.retryable, Failure.Outcome.UNKNOWN,
                                    failure.getMessage())
                            : failure;
                }
                moveOn(failure);
            }
        }
    }

    /** Whether HAKeeper says, through any store, that there is no such log: a store may only lack a replica of it. */
    private boolean missing(Failure failure) {
        if (!failure.reason.equals("SHARD_NOT_FOUND")) {
            return false;
        }
        try {
            HAKeeperGrpc.newBlockingStub(channel())
                    .withDeadlineAfter(ATTEMPT_MS, TimeUnit.MILLISECONDS)
                    .getShardInfo(GetShardInfoRequest.newBuilder().setShardId(shard).build());
            return false;
        } catch (io.grpc.StatusRuntimeException error) {
            return Failure.of(error, false).reason.equals("SHARD_NOT_FOUND");
        }
    }

    /** To the store that a failure names, at once; without a hint a pause, and another store. */
    void moveOn(Failure failure) throws InterruptedException {
        String hint = failure.details.getOrDefault("address", "");
        if (failure.reason.equals("NOT_LEADER") && !hint.isEmpty() && !hint.equals(first())) {
            prefer(hint);
            return;
        }
        String pause = failure.details.get("retry_after_ms");
        Thread.sleep(pause != null ? Long.parseLong(pause) : ThreadLocalRandom.current().nextLong(10, 150));
        if (pause == null) {
            next();
        }
    }

    @Override
    public void close() {
        channels.values().forEach(ManagedChannel::shutdownNow);
    }
}
